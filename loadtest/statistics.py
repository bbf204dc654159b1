"""Numbers that stand for many."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    mean: float
    p50: float
    p90: float
    p99: float


def summarise(values: Iterable[float | None]) -> Summary | None:
    """Of the values that are there; None if none is."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Summary(math.fsum(known) / len(known), *(percentile(known, percent) for percent in (50, 90, 99)))


def summary_of(values: Iterable[float | None]) -> dict[str, float] | None:
    """The same for a report."""
    summary = summarise(values)
    return None if summary is None else asdict(summary)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of at least one value, in ascending order; between two of them in proportion (numpy's default)."""
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
