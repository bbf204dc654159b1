"""A run summed up: as JSON for machines (`loadtest.bench` lists the keys), as a few lines for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from headway.core.stats import StepStats
from loadtest.recording import Outcome, Recording
from loadtest.request_figures import finish_reason, request_rows, tenant_figures
from loadtest.slo import Slo, goodput
from loadtest.statistics import summary_of
from loadtest.step_figures import step_columns

SHOWN_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
SHOWN_LATENCIES = (
    ("queued", "queue_seconds"),
    ("first token", "ttft_seconds"),
    ("per token", "tpot_seconds"),
    ("between them", "inter_token_gap_seconds"),
    ("end to end", "e2e_seconds"),
)
LONG_KEYS = ("requests", "timeline")
"""Of a run, what one run in many is enough to keep."""


def build_report(
    recording: Recording, slo: Slo | None = None, weights: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Everything that was measured; what was run, and where, is the caller's to add. ``weights`` are the tenants'."""
    return {
        **_request_figures(recording),
        **_step_figures(recording),
        "cpu_seconds": dict(recording.cpu_seconds),
        "goodput": goodput(recording, slo),
        "tenants": tenant_figures(recording, weights or {}),
        "requests": request_rows(recording),
        "timeline": step_columns(recording),
    }


def without_details(run: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key not in LONG_KEYS}


def _request_figures(recording: Recording) -> dict[str, Any]:
    completed, duration = recording.completed, recording.duration_seconds
    outcomes = Counter(line.outcome for line in recording.timelines)
    return {
        "num_requests": len(recording.timelines),
        "num_completed": len(completed),
        "num_cancelled": outcomes[Outcome.CANCELLED],
        "num_failed": outcomes[Outcome.FAILED],
        "num_lost": outcomes[Outcome.LOST],
        "finish_reasons": Counter(finish_reason(line) for line in recording.timelines),
        "errors": dict(recording.errors),
        "num_output_tokens": recording.num_output_tokens,
        "duration_seconds": duration,
        "output_tokens_per_s": recording.num_output_tokens / duration if duration else 0.0,
        "ttft_seconds": summary_of(line.ttft_seconds for line in completed),
        "tpot_seconds": summary_of(line.tpot_seconds for line in completed),
        "e2e_seconds": summary_of(line.e2e_seconds for line in completed),
        "inter_token_gap_seconds": summary_of(gap for line in completed for gap in line.gaps),
        "queue_seconds": summary_of(line.queue_seconds for line in recording.timelines),
    }


def _step_figures(recording: Recording) -> dict[str, Any]:
    log = recording.steps
    decodes = [step for step in log.steps if not step.num_prefill_tokens]
    prefills = [step for step in log.steps if step.num_prefill_tokens]
    return {
        "step_seconds": _by_batch_size(decodes),
        "prefill_step_seconds": _of_steps(prefills),
        "schedule_seconds": summary_of(step.schedule_seconds for step in log.steps),
        "num_steps": len(log.steps),
        "num_prefill_tokens": sum(step.num_prefill_tokens for step in log.steps),
        "slot_utilisation": log.slot_utilisation,
        "num_preemptions": log.since_first("num_preemptions_total"),
        "num_recomputed_tokens": log.since_first("num_recomputed_tokens_total"),
    }


def to_text(report: Mapping[str, Any]) -> str:
    return "\n".join(_lines(report))


def floor_text(floor: Mapping[str, Any]) -> str:
    """The machine's rates, and how much of a decode step's time the least possible is."""
    shares = (f"{size}: {share:.0%}" for size, share in floor["share"].items() if int(size) in SHOWN_BATCH_SIZES)
    rates = f"{floor['read_bytes_per_s'] / 1e9:.1f} GB/s read, {floor['matrix_flops_per_s'] / 1e12:.2f} TFLOP/s"
    return f"machine: {rates}; floor / decode step by sequences: " + ", ".join(shares)


def _lines(report: Mapping[str, Any]) -> Iterable[str]:
    yield (
        f"{report['num_completed']} of {report['num_requests']} requests, {report['num_output_tokens']} output tokens"
        f" in {report['duration_seconds']:.2f} s: {report['output_tokens_per_s']:.1f} output tokens/s"
    )
    if report["num_completed"] < report["num_requests"]:
        yield ", ".join(f"{report[f'num_{outcome}']} {outcome}" for outcome in ("cancelled", "failed", "lost"))
        yield "ended: " + ", ".join(f"{number} {reason}" for reason, number in report["finish_reasons"].items())
    yield from (f"error: {number} x {error}" for error, number in report["errors"].items())
    yield f"{'':14}{'mean':>9}{'p50':>9}{'p90':>9}{'p99':>9}"
    for name, key in SHOWN_LATENCIES:
        yield _row(name, report[key])
    for size in SHOWN_BATCH_SIZES:
        if summary := report["step_seconds"].get(str(size)):
            yield _row(f"decode {size}", summary)
    yield _row("with prefill", report["prefill_step_seconds"])
    yield _row("scheduling", report["schedule_seconds"])
    if report["slot_utilisation"] is not None:
        yield f"slots used: {report['slot_utilisation']:.0%}; preemptions: {report['num_preemptions']}"
    if report["goodput"] is not None:
        yield _goodput_text(report["goodput"])
    if len(report["tenants"]) > 1:
        yield from (_row(f"{name}, e2e", tenant["e2e_seconds"]) for name, tenant in report["tenants"].items())
    yield "CPU seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in report["cpu_seconds"].items())


def _goodput_text(goodput: Mapping[str, Any]) -> str:
    promises = ((name.removesuffix("_seconds"), most) for name, most in goodput["slo"].items() if most is not None)
    slo = ", ".join(f"{name} ≤ {most:g} s" for name, most in promises)
    return f"goodput: {goodput['share']:.0%} of requests kept {slo}: {goodput['requests_per_s']:.2f} requests/s"


def _row(name: str, summary: Mapping[str, float] | None) -> str:
    if summary is None:
        return f"{name:14}{'-':>9}"
    numbers = "".join(f"{summary[key] * 1000:9.1f}" for key in ("mean", "p50", "p90", "p99"))
    return f"{name:14}{numbers}  ms"


def _by_batch_size(steps: Iterable[StepStats]) -> dict[str, dict[str, float] | None]:
    sizes: defaultdict[int, list[StepStats]] = defaultdict(list)
    for step in steps:
        sizes[step.num_sequences].append(step)
    return {str(size): _of_steps(sizes[size]) for size in sorted(sizes)}


def _of_steps(steps: list[StepStats]) -> dict[str, float] | None:
    summary = summary_of(step.seconds for step in steps)
    return None if summary is None else {"num_steps": len(steps), **summary}
