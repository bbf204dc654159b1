"""What a run of the long prompt is summed up to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.job import FinishReason
from headway.core.stats import StepStats
from loadtest.recording import Recording, StepEnd, StepLog, Timeline
from loadtest.tuning.long_prompt import LONG, SCENARIO, sum_up, table, variants
from loadtest.workloads.drawing import draw_requests
from loadtest.workloads.requests import Request
from loadtest.workloads.scenario_files import load_scenario


def a_line(label: str | None, due_at: float, token_at: list[float]) -> Timeline:
    line = Timeline.of(replace(Request((1,), len(token_at)), label=label))
    line.send(due_at, due_at)
    for moment in token_at:
        line.receive(1, moment)
    line.end(FinishReason.LENGTH, token_at[-1])
    return line


def a_recording(target: bool = True) -> Recording:
    """Steps of a second; from 3 to 6 s, while the long prompt is computed, of one and a half."""
    ends = [1.0, 2.0, 3.0, 4.5, 6.0, 7.0, 8.0]
    seconds = [1.0, 1.0, 1.0, 1.5, 1.5, 1.0, 1.0]
    steps = [
        StepStats(n, s, 0.0, 0, 1, 1, predicted_seconds=1.2 if target else None) for n, s in enumerate(seconds, start=1)
    ]
    log = StepLog(steps=steps, ends=[StepEnd(end, 1) for end in ends])
    lines = [a_line(None, 0.0, ends), a_line(LONG, 3.0, [6.0, 7.0, 8.0])]
    return Recording(lines, log, {})


def test_gaps_are_those_while_the_long_prompt_is_computed():
    run = sum_up(a_recording())
    assert run.decode_gap_seconds["p50"] == pytest.approx(1.5)
    assert run.max_gap_seconds == pytest.approx(1.5)
    assert run.ttft_seconds == pytest.approx(3.0)
    assert run.tpot_seconds == pytest.approx(7.0 / 6)
    assert run.output_tokens_per_s == pytest.approx(10 / 8.0)


def test_steps_with_nobody_who_waits_for_a_token_are_no_gaps():
    recording = a_recording()
    recording.steps.steps[4] = replace(recording.steps.steps[4], num_decode_tokens=0, seconds=99.0)
    assert sum_up(recording).decode_gap_seconds["p99"] == pytest.approx(1.5)


def test_predictions_are_compared_with_what_came():
    assert sum_up(a_recording()).prediction_error == pytest.approx((5 * 0.2 + 2 * 0.3 / 1.5) / 7)
    assert sum_up(a_recording(target=False)).prediction_error is None


def test_the_scenario_has_one_long_prompt_and_the_budgets_hold_its_decodes():
    requests = draw_requests(load_scenario(SCENARIO))
    assert sum(request.label == LONG for request in requests) == 1
    for config in variants(decode_step_seconds=0.02).values():
        assert config.num_step_tokens > len(requests)
    targets = [config.tpot_target for config in variants(0.02).values() if config.tpot_target is not None]
    assert targets == pytest.approx([0.04, 0.06, 0.1])


def test_the_table_has_a_line_for_each_variant():
    run = {
        "decode_gap_seconds": {"p99": 0.1},
        "max_gap_seconds": 0.2,
        "tpot_seconds": 0.05,
        "ttft_seconds": 3.0,
        "output_tokens_per_s": 99.0,
    }
    with_target = {**run, "prediction_error": 0.25}
    report = {
        "decode_step_seconds": 0.02,
        "num_rounds": 1,
        "variants": {"fixed": {"runs": [{**run, "prediction_error": None}]}, "paced": {"runs": [with_target]}},
    }
    lines = list(table(report))
    assert lines[2].startswith("fixed")
    assert lines[3].split() == ["paced", "0.100", "0.200", "0.0500", "3.00", "99.0", "25%"]
