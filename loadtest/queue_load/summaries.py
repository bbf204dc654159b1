"""Figures of the report that are made from others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from loadtest.statistics import summarise


def summary_of(values: Iterable[float]) -> dict[str, float] | None:
    """``{"mean", "p50", "p90", "p99"}``; None where nothing was measured."""
    summary = summarise(values)
    return None if summary is None else asdict(summary)


def growth(costs: Mapping[int, float]) -> dict[str, float] | None:
    """How a cost grows from the least number of waiting jobs to the most; None if there is only one.

    ``exponent``: e where the cost is as n^e. ``of_log_n``: the exponent that log n itself would have between the two,
    which is what a search tree costs.
    """
    few, many = min(costs), max(costs)
    if few == many or few < 2:
        return None
    times_more = math.log(many / few)
    return {
        "ratio": costs[many] / costs[few],
        "exponent": math.log(costs[many] / costs[few]) / times_more,
        "of_log_n": math.log(math.log(many) / math.log(few)) / times_more,
    }


def at(report: Any, path: str) -> float | None:
    """The figure at a path of keys with slashes between them; None where it was not measured."""
    for key in path.split("/"):
        if not isinstance(report, Mapping) or report.get(key) is None:
            return None
        report = report[key]
    return float(report)
