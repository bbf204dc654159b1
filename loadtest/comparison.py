"""Ratios of runs that took turns: ours over a peer's, run by run, so that a slow quarter of an hour slows both."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

THROUGHPUT = "output_tokens_per_s"
LATENCIES = ("ttft_seconds", "tpot_seconds", "e2e_seconds")


def compare(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By figure (means, for latencies): median, least and greatest ratio. Reports are `loadtest.report`'s, in turns."""
    pairs = list(zip(ours, theirs, strict=True))
    ratios = {THROUGHPUT: [our[THROUGHPUT] / their[THROUGHPUT] for our, their in pairs]}
    for key in LATENCIES:
        ratios[key] = [our[key]["mean"] / their[key]["mean"] for our, their in pairs if our[key] and their[key]]
    return {key: spread(values) for key, values in ratios.items() if values}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Of at least one value."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def median_run(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose throughput is the median (of an even number, the lower one in the middle)."""
    return sorted(runs, key=lambda run: float(run[THROUGHPUT]))[(len(runs) - 1) // 2]


def comparison_text(peer: str, ratios: Mapping[str, Mapping[str, float]], ours: str = "headway") -> str:
    figures = (f"{key} {_range(ratio)}" for key, ratio in ratios.items())
    return f"{ours} / {peer}: " + ", ".join(figures)


def _range(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
