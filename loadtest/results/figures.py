"""What is read off a run: every figure with its name, its unit, and which way is better."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Protocol

from loadtest.results.documents import Document, RunFigures

STATISTICS = ("mean", "p50", "p90", "p99")
LATENCIES = {
    "ttft_seconds": "time to first token",
    "tpot_seconds": "time per output token",
    "inter_token_gap_seconds": "gap between tokens",
    "e2e_seconds": "end to end",
    "queue_seconds": "wait in the queue",
}
"""Keys of a run, each a summary or null."""


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


class Unit(StrEnum):
    SECONDS = "s"
    SHARE = "share"
    PER_SECOND = "1/s"
    COUNT = "count"
    RATIO = "ratio"

    def show(self, value: float) -> str:
        """For people: seconds as milliseconds up to ten seconds, shares in per cent; three significant digits, or all
        before the point."""
        if self is Unit.SHARE:
            return f"{value:.1%}"
        if self is Unit.COUNT and float(value).is_integer():
            return f"{value:,.0f}"
        if self is Unit.SECONDS:
            return f"{rounded(value)} s" if value >= 10 else f"{rounded(value * 1000)} ms"
        return rounded(value)


def rounded(value: float) -> str:
    """Three significant digits, and never an exponent."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):.6f}".rstrip("0").rstrip(".") if abs(value) < 0.01 else f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Readings:
    """A figure in each run of a file; at least one."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def greatest(self) -> float:
        return max(self.values)

    @property
    def has_spread(self) -> bool:
        """One run says nothing about the next."""
        return len(self.values) > 1

    def show(self, unit: Unit) -> str:
        """The median, with the range if it has one."""
        if self.least == self.greatest:
            return unit.show(self.median)
        return f"{unit.show(self.median)} ({unit.show(self.least)} to {unit.show(self.greatest)})"


class Figure(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def better(self) -> Better: ...


class DocumentFigure(Figure, Protocol):
    def readings(self, document: Document) -> Readings | None:
        """None if the file does not have it."""


@dataclass(frozen=True, slots=True)
class RunFigure:
    """Of Headway's runs."""

    key: str
    """An attribute of `RunFigures`, dotted."""
    name: str
    unit: Unit
    better: Better

    def of(self, run: RunFigures) -> float | None:
        first, _, rest = self.key.partition(".")
        value = getattr(run, first)
        return value if value is None or not rest else attrgetter(rest)(value)

    def readings(self, document: Document) -> Readings | None:
        return _readings(self.of(run) for run in document.runs)


@dataclass(frozen=True, slots=True)
class RatioFigure:
    """A figure of Headway over a peer's, run by run: what is left when the machine itself has become slower."""

    peer: str
    figure: RunFigure

    @property
    def key(self) -> str:
        return f"{self.figure.key}/{self.peer}"

    @property
    def name(self) -> str:
        return f"{self.figure.name} ÷ {self.peer}"

    @property
    def unit(self) -> Unit:
        return Unit.RATIO

    @property
    def better(self) -> Better:
        return self.figure.better

    def readings(self, document: Document) -> Readings | None:
        if self.peer not in document.peers:
            return None
        pairs = zip(document.runs, document.peers[self.peer].runs, strict=False)
        return _readings(_quotient(self.figure.of(ours), self.figure.of(theirs)) for ours, theirs in pairs)


THROUGHPUT = RunFigure("output_tokens_per_s", "output tokens/s", Unit.PER_SECOND, Better.HIGHER)
MEAN_LATENCIES = tuple(
    RunFigure(f"{key}.mean", f"{name}, mean", Unit.SECONDS, Better.LOWER) for key, name in LATENCIES.items()
)
FIGURES = (
    THROUGHPUT,
    *(
        RunFigure(f"{key}.{statistic}", f"{name}, {statistic}", Unit.SECONDS, Better.LOWER)
        for key, name in LATENCIES.items()
        for statistic in STATISTICS
    ),
    RunFigure("goodput.share", "requests within the SLO", Unit.SHARE, Better.HIGHER),
    RunFigure("goodput.requests_per_s", "goodput, requests/s", Unit.PER_SECOND, Better.HIGHER),
    RunFigure("slot_utilisation", "slots used", Unit.SHARE, Better.HIGHER),
    RunFigure("num_preemptions", "preemptions", Unit.COUNT, Better.LOWER),
    RunFigure("num_failed", "failed requests", Unit.COUNT, Better.LOWER),
    RunFigure("num_lost", "lost requests", Unit.COUNT, Better.LOWER),
    RunFigure("total_cpu_seconds", "CPU time", Unit.SECONDS, Better.LOWER),
)


def _readings(values: Iterable[float | None]) -> Readings | None:
    known = tuple(float(value) for value in values if value is not None)
    return Readings(known) if known else None


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None
