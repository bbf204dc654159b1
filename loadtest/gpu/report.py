"""What was found, for people and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.gpu.checks import Check, Verdict

UNITS = (
    ("_bytes_per_s", 1e-9, "{:.0f} GB/s"),
    ("_flops_per_s", 1e-12, "{:.0f} TFLOP/s"),
    ("_per_s", 1.0, "{:.0f}/s"),
    ("_seconds", 1e3, "{:.3f} ms"),
    ("_share", 1e2, "{:.1f} %"),
    ("_ratio", 1.0, "{:.2f}"),
    ("error", 1.0, "{:.1e}"),
    ("difference", 1.0, "{:.1e}"),
    ("shortfall", 1.0, "{:.1e}"),
    ("", 1.0, "{:.0f}"),
)
"""By how a figure's name ends: in which unit people read it."""


def shown(name: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None or math.isnan(value):
        return "–"
    if name.endswith("_seconds") and value >= 1:
        return f"{value:.1f} s"
    _, factor, pattern = next(unit for unit in UNITS if name.endswith(unit[0]))
    return pattern.format(value * factor)


def line(check: Check) -> str:
    """Of the table."""
    first, *others = check.item.figures
    found = shown(first, check.figures.get(first)) if check.figures else ""
    if check.figures and check.item.aim is not None:
        found += f" (aim {'≥' if check.item.aim.is_least else '≤'} {shown(first, check.item.aim.limit)})"
    rest = [f"{title(name)} {shown(name, check.figures[name])}" for name in others if name in check.figures]
    detail = "; ".join(text for text in (found, *rest, check.note) if text)
    return f"{check.verdict:8}  {check.part:9}  {check.item.name:46}  {detail}".rstrip()


def title(name: str) -> str:
    """Of a figure, in words."""
    for ending in ("_bytes_per_s", "_flops_per_s", "_per_s", "_seconds", "_ratio", "_share"):
        name = name.removesuffix(ending)
    return name.replace("_", " ")


def summary(checks: Sequence[Check]) -> str:
    """How many came to what, and the names of what must be looked at."""
    counts = [(verdict, [check for check in checks if check.verdict is verdict]) for verdict in Verdict]
    lines = [", ".join(f"{len(found)} {verdict}" for verdict, found in counts if found)]
    lines += [f"  {check.verdict}: {check.part}: {check.item.name}" for check in checks if not check.verdict.is_good]
    return "\n".join(lines)


def to_json(machine: Mapping[str, Any], checks: Sequence[Check], seconds: float | None = None) -> dict[str, Any]:
    """``passed``: everything that was asked for was run, and met its aim."""
    return {
        "machine": machine,
        "seconds": seconds,
        "passed": bool(checks) and all(check.verdict.is_good for check in checks),
        "checks": [check.to_json() for check in checks],
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all. Numbers that JSON does not have become null."""
    text = json.dumps(_finite(document), indent=2) + "\n"
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
