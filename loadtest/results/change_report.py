"""A comparison of two reports, as a table for people and as JSON for machines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from loadtest.results.changes import RULE, Change, Comparison
from loadtest.results.figures import Readings, Unit

HEAD = ("figure", "before", "after", "after ÷ before", "")
_GAP = "  "


def to_text(comparison: Comparison) -> str:
    return "\n".join([*_warnings(comparison), *_table([HEAD, *map(_row, comparison.changes)]), "", RULE])


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Ratios that do not exist are null, and so is how many times worse what came from nothing is."""
    return {
        "differences": [{"what": d.what, "before": d.before, "after": d.after} for d in comparison.differences],
        "incomplete": list(comparison.incomplete),
        "rule": RULE,
        "figures": [_figure(change) for change in comparison.changes],
    }


def failures_text(failures: Sequence[Change], limit: float) -> str:
    named = (f"{change.figure.key} ({_how_much(change)}, {change.verdict})" for change in failures)
    return f"worse by more than {limit:g} times: " + ", ".join(named)


def _warnings(comparison: Comparison) -> Iterator[str]:
    """What speaks against comparing them, before the figures."""
    for which in comparison.incomplete:
        yield f"warning: the runs {which} did not complete all requests"
    if comparison.differences:
        yield "warning: not the same was run, so the change may be due to that:"
        yield from (f"  {difference}" for difference in comparison.differences)
    if comparison.incomplete or comparison.differences:
        yield ""


def _row(change: Change) -> tuple[str, ...]:
    ratio = "" if change.ratio is None else f"{change.ratio:.2f}"
    return (
        change.figure.name,
        _readings(change.before, change.figure.unit),
        _readings(change.after, change.figure.unit),
        ratio,
        change.verdict,
    )


def _readings(readings: Readings | None, unit: Unit) -> str:
    if readings is None:
        return "-"
    return readings.show(unit)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        first, *numbers, verdict = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join([row[0].ljust(len(first)), *numbers, verdict.strip()]).rstrip()


def _how_much(change: Change) -> str:
    return "gone" if change.worsening is None else f"{change.worsening:.2f}"


def _figure(change: Change) -> dict[str, Any]:
    worsening = change.worsening
    return {
        "figure": change.figure.key,
        "unit": change.figure.unit,
        "better": change.figure.better,
        "before": _spread(change.before),
        "after": _spread(change.after),
        "ratio": change.ratio,
        "worsening": None if worsening is None or math.isinf(worsening) else worsening,
        "verdict": change.verdict,
    }


def _spread(readings: Readings | None) -> dict[str, float] | None:
    if readings is None:
        return None
    return {
        "median": readings.median,
        "min": readings.least,
        "max": readings.greatest,
        "num_runs": len(readings.values),
    }
