"""Several readings of one figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    def to_text(self, pattern: str = ".2f") -> str:
        return f"{self.median:{pattern}} ({self.min:{pattern}} to {self.max:{pattern}})"
