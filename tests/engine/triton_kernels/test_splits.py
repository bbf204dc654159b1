from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.triton_kernels.splits import MAX_KEYS, MAX_SPLITS, MIN_KEYS, num_splits

SLOTS = 264
"""An H100's 132 multiprocessors, two programs each."""


def test_a_batch_that_fills_the_machine_is_not_split():
    assert num_splits(num_programs=64 * 8, max_keys=4096, num_slots=SLOTS) == 1


def test_one_sequence_is_split_until_the_machine_is_full():
    assert 8 * num_splits(num_programs=8, max_keys=32_768, num_slots=SLOTS) >= 0.9 * SLOTS


def test_a_short_context_is_not_split():
    assert num_splits(num_programs=8, max_keys=MIN_KEYS, num_slots=SLOTS) == 1


def test_a_last_round_that_would_be_nearly_empty_is_avoided():
    # 272 programs: a full round, and one of eight.
    splits = num_splits(num_programs=34 * 8, max_keys=8192, num_slots=SLOTS)
    rounds = -(-34 * 8 * splits // SLOTS)
    assert splits > 1
    assert 34 * 8 * splits / (rounds * SLOTS) > 0.85


def test_nobody_reads_a_very_long_context_alone():
    assert num_splits(num_programs=10_000, max_keys=4 * MAX_KEYS, num_slots=SLOTS) >= 4


@pytest.mark.parametrize("num_slots", [1, 100, 5000])
@given(num_programs=st.integers(1, 100_000), max_keys=st.integers(1, 2_000_000))
def test_there_is_always_a_number_within_its_limits(num_slots, num_programs, max_keys):
    splits = num_splits(num_programs, max_keys, num_slots)
    assert 1 <= splits <= MAX_SPLITS
    assert splits == 1 or (splits - 1) * MIN_KEYS < max_keys
