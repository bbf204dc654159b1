"""A series of numbers as one line of blocks, for a terminal: ▁▂▅█."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"
GAP = " "


def sparkline(values: Sequence[float | None], ascii_only: bool = False) -> str:
    """One character for each value, from 0 to the largest; None is a gap. All of nothing is the lowest line."""
    levels = ASCII if ascii_only else BLOCKS
    largest = max((value for value in values if value is not None), default=0.0)
    return "".join(GAP if value is None else levels[_level(value, largest, len(levels))] for value in values)


def _level(value: float, largest: float, num_levels: int) -> int:
    """What is more than 0 is seen to be."""
    if value <= 0 or largest <= 0:
        return 0
    return max(1, min(num_levels - 1, round(value / largest * (num_levels - 1))))
