from __future__ import annotations

import pytest

from headway.core.job import FinishReason
from loadtest.errors import BenchInputError
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.slo import Slo, goodput, parse_slo


def line(ttft: float = 1.0, num_tokens: int = 3, tpot: float = 0.5, reason=FinishReason.LENGTH, **fields) -> Timeline:
    made = Timeline(0.0, num_tokens, **fields)
    for number in range(num_tokens):
        made.receive(1, ttft + number * tpot)
    made.end(reason, ttft + (num_tokens - 1) * tpot)
    return made


@pytest.mark.parametrize(
    ("slo", "is_kept"),
    [
        (Slo(), True),
        (Slo(ttft_seconds=1.0), True),
        (Slo(ttft_seconds=0.9), False),
        (Slo(tpot_seconds=0.5, e2e_seconds=2.0), True),
        (Slo(tpot_seconds=0.4), False),
        (Slo(e2e_seconds=1.9), False),
    ],
)
def test_a_promise_is_kept_by_whoever_takes_no_longer(slo, is_kept):
    assert slo.is_kept(line()) is is_kept


def test_a_single_token_has_no_time_per_token_to_keep():
    assert Slo(tpot_seconds=0.1).is_kept(line(num_tokens=1))


def test_a_request_that_failed_kept_nothing():
    assert not Slo().is_kept(line(reason=FinishReason.ERROR))


def test_goodput_is_of_the_requests_that_nobody_cancelled_over_the_whole_run():
    lines = [
        line(),
        line(ttft=5.0),
        line(reason=FinishReason.CANCELLED, has_given_up=True),
        line(reason=FinishReason.STOP),
    ]
    report = goodput(Recording(lines, StepLog(), {}), Slo(ttft_seconds=2.0))
    assert report["slo"] == {"ttft_seconds": 2.0, "tpot_seconds": None, "e2e_seconds": None}
    assert report["share"] == pytest.approx(1 / 3)
    assert report["requests_per_s"] == pytest.approx(1 / 6.0)


def test_without_a_promise_there_is_no_goodput():
    assert goodput(Recording([line()], StepLog(), {}), None) is None


def test_promises_are_written_as_names_and_seconds():
    assert parse_slo("ttft=0.5, e2e=10") == Slo(ttft_seconds=0.5, e2e_seconds=10.0)


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=fast", "latency=3", "ttft=0", "tpot=-1", "tpot=nan", "ttft=1,ttft=2"]
)
def test_what_is_no_promise_is_refused(text):
    with pytest.raises(BenchInputError):
        parse_slo(text)
