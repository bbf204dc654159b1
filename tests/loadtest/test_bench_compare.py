"""`headway bench compare`: the table, the JSON and the exit status."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from headway.commands.bench import command
from headway.commands.statuses import FAILED, USAGE
from tests.loadtest.reports import MACHINE, Report, peer, queue_report, report, run, write


@pytest.fixture
def compare(tmp_path):
    def of(before: Report, after: Report, *arguments: str) -> Result:
        files = [write(tmp_path, "before.json", before), write(tmp_path, "after.json", after)]
        return CliRunner().invoke(command, ["compare", *map(str, files), *arguments])

    return of


def row(result: Result, name: str) -> list[str]:
    (line,) = [line for line in result.stdout.splitlines() if line.startswith(name)]
    return line.removeprefix(name).split()


FAST, SLOW = report(run(100), run(102), run(104)), report(run(50), run(51), run(52))


def test_every_figure_has_its_change_and_the_rule_is_stated(compare):
    result = compare(FAST, SLOW)
    assert result.exit_code == 0
    assert row(result, "output tokens/s") == ["102", "(100", "to", "104)", "51", "(50", "to", "52)", "0.50", "worse"]
    assert row(result, "time to first token, p99") == ["800", "ms", "800", "ms", "1.00", "the", "same"]
    assert "A difference is larger than the spread if the ranges of the runs" in result.stdout
    assert "warning" not in result.stdout


def test_what_neither_file_has_has_no_row(compare):
    assert "wait in the queue" not in compare(FAST, SLOW).stdout


def test_with_one_run_nothing_is_said_of_the_spread(compare):
    assert row(compare(report(run(100)), report(run(50))), "output tokens/s")[-2:] == ["spread", "unknown"]


def test_the_ratio_to_a_common_peer_has_a_row(compare):
    beside = report(run(100), peers={"vllm": peer(run(50))})
    assert row(compare(beside, beside), "output tokens/s ÷ vllm")[:2] == ["2", "2"]


def test_each_difference_in_what_was_run_is_a_warning(compare):
    other = report(run(100), seed=2, machine={**MACHINE, "num_cores": 4})
    text = compare(FAST, other).stdout
    assert "warning: not the same was run" in text
    assert "  seed: unknown before, 2 after" in text
    assert "  machine, num_cores: 2 before, 4 after" in text


def test_incomplete_runs_are_a_warning(compare):
    assert "warning: the runs after did not complete" in compare(FAST, report(run(num_completed=1))).stdout


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--fail-above", "1.9"], FAILED),
        (["--fail-above", "2.0"], 0),
        (["--fail-above", "1.1", "--figure", "ttft_seconds.p99"], 0),
        (["--fail-above", "1.1", "--figure", "ttft_seconds.p99", "--figure", "output_tokens_per_s"], FAILED),
        ([], 0),
    ],
)
def test_a_limit_decides_the_exit_status(arguments, status, compare):
    result = compare(FAST, SLOW, *arguments)
    assert result.exit_code == status
    assert ("worse by more than" in result.stderr) == (status == FAILED)


def test_a_failure_is_named_with_how_much_and_whether_it_is_noise(compare):
    assert "output_tokens_per_s (2.00, worse)" in compare(FAST, SLOW, "--fail-above", "1.1").stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--figure", "ttft_seconds.p99"], "--figure is for --fail-above"),
        (["--fail-above", "0.9"], "--fail-above"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(arguments, complaint, compare):
    result = compare(FAST, SLOW, *arguments)
    assert result.exit_code == USAGE
    assert complaint in result.output


def test_a_figure_that_is_not_there_is_refused_with_those_that_are(compare):
    assert "they have: output_tokens_per_s" in str(compare(FAST, SLOW, "--fail-above", "2", "--figure", "x").exception)


def test_machines_get_one_object(compare):
    result = compare(FAST, SLOW, "--json", "--fail-above", "1.1")
    assert result.exit_code == FAILED
    found = json.loads(result.stdout)
    assert (found["differences"], found["incomplete"]) == ([], [])
    assert (found["fail_above"], found["failed"]) == (1.1, ["output_tokens_per_s"])
    assert found["figures"][0] == {
        "figure": "output_tokens_per_s",
        "unit": "1/s",
        "better": "higher",
        "before": {"median": 102, "min": 100, "max": 104, "num_runs": 3},
        "after": {"median": 51, "min": 50, "max": 52, "num_runs": 3},
        "ratio": 0.5,
        "worsening": 2.0,
        "verdict": "worse",
    }


def test_what_came_from_nothing_is_still_json(compare):
    result = compare(report(run(num_lost=0)), report(run(num_lost=1)), "--json")
    (lost,) = [figure for figure in json.loads(result.stdout)["figures"] if figure["figure"] == "num_lost"]
    assert (lost["ratio"], lost["worsening"]) == (None, None)


def test_a_bad_file_is_named(compare):
    assert "after.json is no report" in str(compare(FAST, {"runs": []}).exception)


def test_two_files_of_the_queue_are_compared_by_their_own_figures(compare):
    result = compare(queue_report(), queue_report(scale=0.5))
    assert result.exit_code == 0
    assert row(result, "fifo 1000, serve, 8 workers: ended/s")[:3] == ["3,000", "1,500", "0.50"]
    assert row(result, "fifo 1000, core: decision, p99")[:5] == ["0.08", "ms", "0.16", "ms", "2.00"]
    assert "warning" not in result.stdout


def test_of_the_queue_the_rates_are_held_against_a_limit(compare):
    result = compare(queue_report(), queue_report(scale=0.5), "--fail-above", "1.9")
    assert result.exit_code == FAILED
    assert "fifo/1000/serve/1/settled_per_s (2.00" in result.stderr
    assert "grant_seconds" not in result.stderr
    assert compare(queue_report(), queue_report(scale=2.0), "--fail-above", "1.1").exit_code == 0


@pytest.mark.parametrize("turned", [False, True])
def test_a_file_of_the_queue_and_one_of_requests_are_not_compared(compare, turned):
    pair = [report(), queue_report()]
    files = ["before.json", "after.json"]
    result = compare(*(pair[::-1] if turned else pair))
    of_queue, other = files if turned else files[::-1]
    assert str(result.exception).count("compare two of one kind") == 1
    assert f"{of_queue} is of `headway bench --target queue`" in str(result.exception)
    assert f"{other} is not" in str(result.exception)
