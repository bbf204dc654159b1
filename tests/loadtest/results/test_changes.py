"""What counts as a change, at its edges."""

from __future__ import annotations

import json
import math
from itertools import combinations

import pytest

from loadtest.errors import BenchInputError
from loadtest.results.changes import Change, Comparison, Verdict, compare_documents
from loadtest.results.documents import decode_document
from tests.loadtest.reports import Report, peer, report, run, summary


@pytest.fixture
def compared():
    def of(before: Report, after: Report) -> Comparison:
        return compare_documents(*(decode_document(json.dumps(each).encode(), "a file") for each in (before, after)))

    return of


def throughputs(*values: float) -> Report:
    return report(*map(run, values))


def latencies(*means: float) -> Report:
    return report(*(run(ttft_seconds=summary(mean)) for mean in means))


def change(comparison: Comparison, key: str = "output_tokens_per_s") -> Change:
    return next(change for change in comparison.changes if change.figure.key == key)


def failed(comparison: Comparison, limit: float, *keys: str) -> list[str]:
    return [change.figure.key for change in comparison.failures(limit, keys)]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((100, 110, 120), (121, 130, 140), Verdict.BETTER),
        ((100, 110, 120), (80, 90, 99), Verdict.WORSE),
        ((100, 110, 120), (120, 130, 140), Verdict.WITHIN_SPREAD),
        ((100, 110, 120), (80, 90, 100), Verdict.WITHIN_SPREAD),
        ((100, 110, 120), (105, 110, 115), Verdict.WITHIN_SPREAD),
        ((100, 110, 120), (100, 200, 300), Verdict.WITHIN_SPREAD),
        ((100,), (200, 210), Verdict.SPREAD_UNKNOWN),
        ((100, 110), (200,), Verdict.SPREAD_UNKNOWN),
        ((100,), (101,), Verdict.SPREAD_UNKNOWN),
        ((100,), (100,), Verdict.SAME),
        ((100, 100), (100, 100, 100), Verdict.SAME),
    ],
)
def test_a_difference_counts_if_the_ranges_of_the_runs_do_not_touch(before, after, verdict, compared):
    assert change(compared(throughputs(*before), throughputs(*after))).verdict is verdict


def test_of_latencies_less_is_better(compared):
    faster = change(compared(latencies(0.4, 0.5), latencies(0.1, 0.2)), "ttft_seconds.mean")
    assert (faster.verdict, faster.ratio) == (Verdict.BETTER, pytest.approx(1 / 3))
    assert faster.worsening == pytest.approx(1 / 3)


def test_of_throughput_more_is_better(compared):
    slower = change(compared(throughputs(100, 102), throughputs(50, 51)))
    assert (slower.verdict, slower.ratio, slower.worsening) == (Verdict.WORSE, 0.5, 2.0)


def test_the_figure_of_a_file_is_the_median_of_its_runs_and_not_the_run_at_its_top(compared):
    uneven = report(*(run(t, ttft_seconds=summary(s)) for t, s in ((100, 0.9), (110, 0.1), (120, 0.2))))
    assert change(compared(uneven, uneven), "ttft_seconds.mean").before.median == pytest.approx(0.2)


def test_what_comes_from_nothing_is_infinitely_worse_and_has_no_ratio(compared):
    lost = change(compared(report(run(num_lost=0)), report(run(num_lost=2))), "num_lost")
    assert (lost.ratio, lost.worsening) == (None, math.inf)
    none = change(compared(report(run(num_lost=0)), report(run(num_lost=0))), "num_lost")
    assert (none.verdict, none.worsening) == (Verdict.SAME, 1.0)


def test_what_only_one_file_has_is_told(compared):
    with_queue = report(run(queue_seconds=summary(0.1)))
    assert change(compared(with_queue, report()), "queue_seconds.mean").verdict is Verdict.ONLY_BEFORE
    assert change(compared(report(), with_queue), "queue_seconds.mean").verdict is Verdict.ONLY_AFTER
    assert all(change.figure.key != "queue_seconds.mean" for change in compared(report(), report()).changes)


def test_beside_a_common_peer_the_ratio_to_it_is_compared_round_by_round(compared):
    """The machine became half as fast: ours and theirs with it."""
    before = report(run(100), run(120), peers={"vllm": peer(run(50), run(40))})
    after = report(run(50), run(60), peers={"vllm": peer(run(25), run(20)), "llamacpp": peer(run(9))})
    ratio = change(compared(before, after), "output_tokens_per_s/vllm")
    assert ratio.before.values == ratio.after.values == (2.0, 3.0)
    assert ratio.verdict is Verdict.WITHIN_SPREAD
    assert change(compared(before, after)).verdict is Verdict.WORSE


@pytest.mark.parametrize(("limit", "fails"), [(1.9, True), (2.0, False), (2.1, False)])
def test_a_limit_is_passed_by_more_than_itself(limit, fails, compared):
    comparison = compared(throughputs(100), throughputs(50))
    assert failed(comparison, limit) == (["output_tokens_per_s"] if fails else [])


def test_only_the_chosen_figures_can_fail(compared):
    comparison = compared(throughputs(100), throughputs(50))
    assert comparison.failures(1.1, ["ttft_seconds.p99"]) == []
    assert [change.figure.key for change in comparison.failures(1.1, ["output_tokens_per_s"])] == [
        "output_tokens_per_s"
    ]


def test_a_percentile_fails_only_if_it_is_chosen(compared):
    slow_tail = report(run(ttft_seconds={**summary(0.2), "p99": 9.0}))
    comparison = compared(report(), slow_tail)
    assert failed(comparison, 1.1) == []
    assert failed(comparison, 1.1, "ttft_seconds.p99") == ["ttft_seconds.p99"]


def test_a_figure_that_is_gone_fails_and_a_new_one_does_not(compared):
    measured, silent = report(run(queue_seconds=summary(0.1))), report()
    assert failed(compared(measured, silent), 1.1) == ["queue_seconds.mean"]
    assert failed(compared(silent, measured), 1.1) == []


def test_a_figure_that_neither_file_has_cannot_be_chosen(compared):
    with pytest.raises(BenchInputError, match=r"neither file has ttft_seconds\.p95; they have: output_tokens_per_s, "):
        failed(compared(report(), report()), 1.1, "ttft_seconds.p95")


@pytest.mark.parametrize("which", ["before", "after"])
def test_runs_that_did_not_do_all_of_the_work_are_told(which, compared):
    files = {"before": report(), "after": report(), which: report(run(), run(num_completed=7))}
    assert compared(files["before"], files["after"]).incomplete == [which]


def test_a_request_that_was_to_be_cancelled_is_not_missing(compared):
    meant = report(run(num_completed=7, num_cancelled=1))
    assert compared(meant, meant).incomplete == []


def test_of_equal_systems_with_three_runs_one_comparison_in_ten_sees_a_difference(compared):
    """What the module says of its rule: all ways to deal six different runs to two files."""
    times = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    deals = [(first, tuple(t for t in times if t not in first)) for first in combinations(times, 3)]
    verdicts = [change(compared(throughputs(*a), throughputs(*b))).verdict for a, b in deals]
    assert len(verdicts) == 20
    assert sum(verdict is not Verdict.WITHIN_SPREAD for verdict in verdicts) == 2
