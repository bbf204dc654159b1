"""Numbers that are read off the newest stats when somebody scrapes.

A series exists exactly as long as somebody knows its value. "No data" is the absence of the series, never 0: an
autoscaler acts on a 0, and a follower or a worker without an engine has nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry.metrics import CallbackOptions, Meter, Observation

Reader = Callable[[CallbackOptions], Iterable[Observation]]


@dataclass(frozen=True, slots=True)
class Point:
    """One series' value; None: unknown."""

    name: str
    value: float | None
    labels: dict[str, str]


class LatestValues:
    """The instruments fed by one kind of stats; ``replace`` swaps all their series at once, from any thread."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._series: dict[str, list[Observation]] = {}

    def add_gauge(self, name: str, description: str, unit: str = "") -> None:
        self._meter.create_observable_gauge(name, [self._reader(name)], unit, description)

    def add_counter(self, name: str, description: str, unit: str = "") -> None:
        """For totals that the stats count themselves; Prometheus takes a restart of their owner for a reset."""
        self._meter.create_observable_counter(name, [self._reader(name)], unit, description)

    def replace(self, points: Iterable[Point]) -> None:
        series: dict[str, list[Observation]] = {}
        for point in points:
            if point.value is not None:
                series.setdefault(point.name, []).append(Observation(point.value, point.labels))
        self._series = series

    def clear(self) -> None:
        self._series = {}

    def _reader(self, name: str) -> Reader:
        return lambda _: self._series.get(name, [])
