"""The fold of a log, without a broker."""

from __future__ import annotations

import pytest

from headway.broker.errors import LogIncomplete
from headway.broker.joblog import LogState, StoredRecord
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken, Record, Released, Tokens, Usage

KEY = JobKey("acme", "a1")


def attempt(number: int, grant: int, payload_hash: str = "h") -> Attempt:
    return Attempt(number, GrantToken(1, grant), "worker", payload_hash)


def state_of(*records: Record | None, key: JobKey = KEY) -> LogState:
    state = LogState(key)
    for sequence, record in enumerate(records, start=10):
        state.add(StoredRecord(sequence, record))
    return state


def test_an_empty_log_expects_sequence_zero_and_belongs_to_anyone() -> None:
    state = LogState(KEY)
    assert state.last_sequence == 0
    assert state.belongs_to("anything")


def test_output_is_joined_over_attempts() -> None:
    state = state_of(attempt(1, 1), Tokens(0, 0, (5, 6), "ab"), attempt(2, 2), Tokens(1, 2, (7,), "c"))
    assert state.output_token_ids == [5, 6, 7]
    assert state.output_text == "abc"
    assert (state.next_seq, state.last_sequence) == (2, 13)
    assert state.grant == GrantToken(1, 2)


def test_a_released_attempt_does_not_count() -> None:
    state = state_of(attempt(1, 1), Released("drain", GrantToken(1, 1)), attempt(2, 2))
    assert state.num_attempts == 2
    assert state.num_counted_attempts == 1


def test_the_first_record_that_names_a_payload_decides_whose_log_it_is() -> None:
    state = state_of(attempt(1, 1, "mine"), attempt(2, 2, "other"))
    assert state.belongs_to("mine")
    assert not state.belongs_to("other")


def test_an_end_of_the_leader_names_the_payload_in_its_header() -> None:
    state = LogState(KEY)
    state.add(StoredRecord(1, End(FinishReason.REJECTED), payload_hash="mine"))
    assert not state.belongs_to("other")
    assert state.end is not None


def test_a_record_of_an_unknown_kind_is_skipped_but_expected() -> None:
    assert state_of(attempt(1, 1), None).last_sequence == 11


def test_a_log_without_its_beginning_is_an_error() -> None:
    with pytest.raises(LogIncomplete):
        state_of(Tokens(3, 17, (5,), "x"))


def test_usage_without_an_end_counts_the_output() -> None:
    assert state_of(attempt(1, 1), Tokens(0, 0, (5, 6), "ab")).usage == Usage(completion_tokens=2)
