"""A soak that has lost something says so."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.faults.joblogs import JobLog
from loadtest.soak_report import Leftovers, SoakReport

NOTHING = Leftovers(jobs=0, leases=0, pages=0)
ATTEMPT = {"kind": "attempt", "worker": "w1", "number": 1}
END = {"kind": "end", "finish_reason": "length"}


def tokens(start: int, count: int) -> dict[str, Any]:
    return {"kind": "tokens", "token_start": start, "token_ids": [0] * count, "text": "x" * count}


def report(*records: dict[str, Any], left: Leftovers = NOTHING) -> SoakReport:
    return SoakReport.of({"n0": JobLog(list(records))}, 1, left, {"worker_killed": 1})


def test_a_job_that_ended_once_with_all_its_tokens_is_good() -> None:
    good = report(ATTEMPT, tokens(0, 2), ATTEMPT, tokens(2, 1), END)
    assert good.is_good
    assert good.as_json()["faults"] == {"worker_killed": 1}


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        ([ATTEMPT, tokens(0, 2)], (0, 0, 0)),
        ([ATTEMPT, tokens(0, 2), tokens(3, 1), END], (1, 1, 0)),
        ([ATTEMPT, tokens(0, 2), tokens(1, 2), END], (1, 0, 1)),
        ([ATTEMPT, tokens(0, 2), END, tokens(2, 1)], (1, 0, 1)),
        ([ATTEMPT, tokens(0, 2), END, END], (0, 0, 1)),
    ],
)
def test_whatever_is_missing_or_too_much_is_counted(records: list[dict[str, Any]], counts: tuple[int, ...]) -> None:
    bad = report(*records)
    assert not bad.is_good
    assert (bad.num_completed, bad.num_gaps, bad.num_overlaps) == counts
    assert len(bad.complaints) == 1


@pytest.mark.parametrize("left", [Leftovers(1, 0, 0), Leftovers(0, 1, 0), Leftovers(0, 0, 1)])
def test_what_was_not_given_back_is_a_loss(left: Leftovers) -> None:
    assert not report(ATTEMPT, tokens(0, 2), END, left=left).is_good
