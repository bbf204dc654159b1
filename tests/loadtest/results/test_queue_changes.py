"""Two files of the queue under load, figure by figure."""

from __future__ import annotations

import json

import pytest

from loadtest.errors import BenchInputError
from loadtest.results.changes import Change, Comparison, Verdict
from loadtest.results.compare_files import compare_files
from tests.loadtest.reports import MACHINE, queue_report, write


@pytest.fixture
def compared(tmp_path):
    def of(before: object, after: object) -> Comparison:
        return compare_files(write(tmp_path, "before.json", before), write(tmp_path, "after.json", after))

    return of


def changes(comparison: Comparison) -> dict[str, Change]:
    return {change.figure.key: change for change in comparison.changes}


def test_every_figure_that_was_measured_is_there_once(compared):
    found = changes(compared(queue_report(), queue_report()))
    served = ("ended_per_s", "settled_per_s", "grant_seconds.p50", "grant_seconds.p99", "decision_seconds.p99")
    assert set(found) == {
        *(f"fifo/1000/core/{name}" for name in ("adds_per_s", "decision_seconds.p50", "decision_seconds.p99")),
        *(f"fifo/1000/intake/{name}" for name in ("jobs_per_s", "bytes_per_job_beyond_payload")),
        *(f"fifo/1000/serve/{n}/{name}" for n in (1, 8) for name in (*served, "queue_cpu_seconds_per_job")),
    }
    assert {change.verdict for change in found.values()} == {Verdict.SAME}


def test_a_queue_that_is_twice_as_fast_is_better_by_every_figure(compared):
    found = changes(compared(queue_report(), queue_report(scale=2.0)))
    assert {change.worsening for change in found.values()} == {0.5}
    assert {change.verdict for change in found.values()} == {Verdict.SPREAD_UNKNOWN}


def test_what_only_one_file_has_is_told_and_a_missing_rate_fails(compared):
    few = queue_report()
    del few["policies"]["fifo"]["1000"]["serve"]["8"]
    comparison = compared(queue_report(), few)
    assert changes(comparison)["fifo/1000/serve/8/ended_per_s"].verdict is Verdict.ONLY_BEFORE
    assert [change.figure.key for change in comparison.failures(1.1)] == [
        "fifo/1000/serve/8/ended_per_s",
        "fifo/1000/serve/8/settled_per_s",
    ]


def test_other_options_and_machines_are_named_but_not_the_names_of_files(compared):
    other = queue_report(options={"num_waiting": 500, "json_path": "other.json"}, machine={**MACHINE, "num_cores": 9})
    assert list(map(str, compared(queue_report(), other).differences)) == [
        "option, num_waiting: 1000 before, 500 after",
        "machine, num_cores: 2 before, 9 after",
    ]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"policies": None}, "policies"),
        ({"policies": {"fifo": {"1000": {"core": {"adds_per_s": "many"}}}}}, "adds_per_s"),
        ({"policies": {"fifo": {"1000": {"serve": {"1": {"grant_seconds": {"mean": 1}}}}}}}, "grant_seconds"),
    ],
)
def test_a_bad_file_is_named_with_the_key(change, key, compared):
    with pytest.raises(BenchInputError, match=rf"after\.json is no report .*{key}"):
        compared(queue_report(), json.loads(json.dumps(queue_report(**change))))
