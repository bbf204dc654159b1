"""The claims as rows of a suite's table: ratios of runs that took turns, round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loadtest.claims.field_benchmark import ideal_ratio
from loadtest.claims.studies import SLOTS, WHOLE_PROMPT
from loadtest.comparison import spread
from loadtest.row import Row

Report = Mapping[str, Any]
Figure = Callable[[Report], float]
"""Of one run."""


def is_claim(study: str) -> bool:
    return study.startswith("same-") or study in ("long-prompt", "policies")


def claim_rows(study: str, report: Report) -> Iterator[Row]:
    """None for a study that is no claim."""
    if study.startswith("same-batch-"):
        yield from _same_batch(int(study.rpartition("-")[2]), report)
    elif study == "same-memory":
        yield _ratio("output tokens/s, paged ÷ reserved, same KV memory", report, "static", _throughput)
        yield _ratio("sequences in a step, paged ÷ reserved, same KV memory", report, "static", _mean_batch)
    elif study == "long-prompt":
        yield _ratio("p99 gap between tokens, 4k prompt in chunks ÷ whole", report, WHOLE_PROMPT, _p99_gap)
        yield _row("longest gap between tokens, the same, median runs", [_longest_gap(report)])
        yield _ratio("output tokens/s, 4k prompt in chunks ÷ whole", report, WHOLE_PROMPT, _throughput)
    elif study == "policies":
        yield from _policies(report)


def _same_batch(cap: int, report: Report) -> Iterator[Row]:
    what = f"{SLOTS} slots, answers up to {cap:,}"
    ideal = f"ideal slot ratio {ideal_ratio(SLOTS, cap):.2f}"
    yield _ratio(f"output tokens/s, continuous ÷ static, {what} ({ideal})", report, "static", _throughput)
    yield _ratio(f"p99 to the end, continuous ÷ static, {what}", report, "static", _p99_end)
    for name, runs in (("continuous", report["runs"]), ("static", report["peers"]["static"]["runs"])):
        yield _row(f"busy slots, {name}, {what}", [run["slot_utilisation"] for run in runs])


def _policies(report: Report) -> Iterator[Row]:
    """Against fifo, which is the target's."""
    for peer in report["peers"]:
        policy = peer.rpartition("=")[2]
        for tenant in ("short", "long"):
            yield _ratio(f"mean to the end of {tenant} jobs, fifo ÷ {policy}", report, peer, _mean_end_of(tenant))


def _longest_gap(report: Report) -> float:
    """Ours over the other's. A prompt that stops everybody once is one gap of each request: too few for a p99 of all
    gaps to see, and just what a reader notices."""
    theirs = next(run for run in report["peers"][WHOLE_PROMPT]["runs"] if "requests" in run)
    return _longest_of(report) / _longest_of(theirs)


def _longest_of(run: Report) -> float:
    return max(float(row["max_gap_seconds"]) for row in run["requests"] if row["max_gap_seconds"] is not None)


def _ratio(what: str, report: Report, peer: str, figure: Figure) -> Row:
    pairs = zip(report["runs"], report["peers"][peer]["runs"], strict=True)
    return _row(what, [figure(ours) / figure(theirs) for ours, theirs in pairs])


def _row(what: str, values: list[float]) -> Row:
    over = spread(values)
    return Row(what, over["median"], over["min"], over["max"])


def _throughput(run: Report) -> float:
    return float(run["output_tokens_per_s"])


def _p99_gap(run: Report) -> float:
    return float(run["inter_token_gap_seconds"]["p99"])


def _p99_end(run: Report) -> float:
    return float(run["e2e_seconds"]["p99"])


def _mean_batch(run: Report) -> float:
    """Tokens come one per sequence and step, but for the steps of a prompt that give none."""
    return float(run["num_output_tokens"] / run["num_steps"])


def _mean_end_of(tenant: str) -> Figure:
    return lambda run: float(run["tenants"][tenant]["e2e_seconds"]["mean"])
