"""A line of a suite's table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be."""

    limit: float
    is_least: bool

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.limit:g}"

    def is_met_by(self, value: float) -> bool:
        return value >= self.limit if self.is_least else value <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    median: float
    least: float | None = None
    greatest: float | None = None
    aim: Aim | None = None

    def to_line(self) -> str:
        spread = "" if self.least is None else f"{self.least:.2f} to {self.greatest:.2f}"
        verdict = "" if self.aim is None else f"{self.aim}{'' if self.aim.is_met_by(self.median) else ': missed'}"
        return f"| {self.what} | {self.median:.2f} | {spread} | {verdict} |"
