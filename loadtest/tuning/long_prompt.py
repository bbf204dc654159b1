"""A long prompt drops into running decodes: fixed budgets and ``tpot_target``. `python -m loadtest.tuning.long_prompt`

One engine, whose scheduler changes from run to run, in rounds; the scenario ``long-prompt``. The targets are multiples
of what a step of these decodes takes on this machine now. It prints a table and, with ``--json``, writes one object:

    machine, scenario, num_rounds
    decode_step_seconds     measured first, with nothing but the decodes
    variants                by name: ``settings``, and for each round of ``runs``

        decode_gap_seconds      a summary of the steps with decodes from when the long prompt is due to its first token:
                                what readers of the others wait for a token meanwhile
        max_gap_seconds, tpot_seconds   the largest of the decoding requests
        ttft_seconds            of the long prompt
        output_tokens_per_s     of all
        prediction_error        mean share of a step's time by which its prediction was wrong; null without a target
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.core.stats import StepStats
from headway.settings import Settings
from loadtest.machine import describe_machine
from loadtest.recording import Recording
from loadtest.statistics import summarise
from loadtest.targets.engine_child import EngineAlone, open_engine
from loadtest.workloads.arrivals import BURST
from loadtest.workloads.drawing import draw_requests
from loadtest.workloads.requests import Request
from loadtest.workloads.scenario_files import load_scenario

SCENARIO = "long-prompt"
LONG = "long"
"""The label of the long prompt."""
TARGETS = (2.0, 3.0, 5.0)
"""Decode steps per output token."""
NUM_WARM_UP = 12
CLOCK_SECONDS = 0.005
"""Between a token and the report of its step, in two readings of one clock."""


@dataclass(frozen=True, slots=True)
class LongPromptRun:
    max_gap_seconds: float
    decode_gap_seconds: Mapping[str, float]
    tpot_seconds: float
    ttft_seconds: float
    output_tokens_per_s: float
    prediction_error: float | None


def variants(decode_step_seconds: float) -> dict[str, SchedulerConfig]:
    """The decodes are sixteen, so the smallest fixed budget leaves a page to prompts."""
    base = SchedulerConfig(prefix_sharing=PrefixSharing.OFF)
    fixed = {
        "whole prompt": replace(base, max_num_batched_tokens=8192, max_prefill_chunk=8192),
        "512 tokens": replace(base, max_num_batched_tokens=512, max_prefill_chunk=512),
        "default": base,
        "80 tokens": replace(base, max_num_batched_tokens=80, max_prefill_chunk=80),
    }
    paced = {
        f"target {ratio:g} decode steps": replace(
            base, max_num_batched_tokens=512, max_prefill_chunk=512, tpot_target=ratio * decode_step_seconds
        )
        for ratio in TARGETS
    }
    return {**fixed, **paced}


def measure(engine: EngineAlone, scheduler: SchedulerConfig, requests: Sequence[Request]) -> LongPromptRun:
    """After a warm-up, as a worker has run before too: a few prompts one after the other, so that steps are known."""
    engine.reschedule(scheduler)
    engine.run(warm_up(requests), [0.1 * number for number in range(NUM_WARM_UP)])
    return sum_up(engine.run(requests, BURST.plan(requests, None)))


def warm_up(requests: Sequence[Request]) -> list[Request]:
    short = requests[0]
    return [replace(short, num_output_tokens=12, label=None) for _ in range(NUM_WARM_UP)]


def sum_up(recording: Recording) -> LongPromptRun:
    (long,) = (line for line in recording.timelines if line.label == LONG)
    others = [line for line in recording.timelines if line.label != LONG]
    assert long.first_token_at is not None
    assert long.ttft_seconds is not None
    log = recording.steps
    summary = summarise(
        step.seconds
        for step, end in zip(log.steps, log.ends, strict=True)
        if step.num_decode_tokens and long.due_at < end.at <= long.first_token_at + CLOCK_SECONDS
    )
    assert summary is not None
    return LongPromptRun(
        max_gap_seconds=max(gap for line in others for gap in line.gaps),
        decode_gap_seconds=asdict(summary),
        tpot_seconds=max(tpot for line in others if (tpot := line.tpot_seconds) is not None),
        ttft_seconds=long.ttft_seconds,
        output_tokens_per_s=recording.num_output_tokens / recording.duration_seconds,
        prediction_error=_prediction_error(recording.steps.steps),
    )


def _prediction_error(steps: Sequence[StepStats]) -> float | None:
    errors = [abs(s.predicted_seconds - s.seconds) / s.seconds for s in steps if s.predicted_seconds is not None]
    return fmean(errors) if errors else None


def decode_step(engine: EngineAlone, requests: Sequence[Request]) -> float:
    """The median, with all decodes and no prompt."""
    decodes = [request for request in requests if request.label != LONG]
    engine.reschedule(SchedulerConfig(prefix_sharing=PrefixSharing.OFF))
    steps = engine.run(decodes, [0.0] * len(decodes)).steps.steps
    return median(step.seconds for step in steps if not step.num_prefill_tokens)


def table(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"decode step {report['decode_step_seconds'] * 1000:.1f} ms; medians over {report['num_rounds']} rounds"
    yield f"{'':24}{'p99 gap':>10}{'max gap':>10}{'worst TPOT':>12}{'long TTFT':>11}{'tokens/s':>10}{'error':>8}"
    for name, variant in report["variants"].items():
        runs = variant["runs"]
        errors = [run["prediction_error"] for run in runs if run["prediction_error"] is not None]
        yield (
            f"{name:24}{median(run['decode_gap_seconds']['p99'] for run in runs):10.3f}"
            f"{median(run['max_gap_seconds'] for run in runs):10.3f}{median(run['tpot_seconds'] for run in runs):12.4f}"
            f"{median(run['ttft_seconds'] for run in runs):11.2f}"
            f"{median(run['output_tokens_per_s'] for run in runs):10.1f}" + (f"{median(errors):8.0%}" if errors else "")
        )


def study(num_rounds: int) -> dict[str, Any]:
    settings = Settings.load({})
    requests = draw_requests(load_scenario(SCENARIO))
    with open_engine(settings.engine, settings.scheduler, _say) as engine:
        step_seconds = decode_step(engine, requests)
        configs = variants(step_seconds)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in configs}
        for number in range(1, num_rounds + 1):
            for name, config in configs.items():
                run = measure(engine, config, requests)
                runs[name].append(asdict(run))
                _say(f"round {number} of {num_rounds}: {name}: longest gap {run.max_gap_seconds:.3f} s")
    return {
        "machine": describe_machine(),
        "scenario": SCENARIO,
        "num_rounds": num_rounds,
        "decode_step_seconds": step_seconds,
        "variants": {name: {"settings": asdict(configs[name]), "runs": runs[name]} for name in configs},
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fixed budgets and tpot_target while a long prompt is computed.")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where to write what was measured")
    arguments = parser.parse_args()
    report = study(arguments.rounds)
    print("\n".join(table(report)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
