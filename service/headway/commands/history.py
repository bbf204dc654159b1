"""The last minutes of each model, as `headway top` has seen them.

Kept by whoever watches and bounded by time, so that a leader keeps nothing for people, and history goes on over a
takeover. It begins when the watching begins. What was not seen (no leader answered) is a gap, never 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.core.status import ModelStatus, QueueStatus

WINDOW_SECONDS = 300.0
MAX_SAMPLES = 3_000
"""At ten samples a second, the shortest interval; longer intervals need fewer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One model at one moment."""

    at: float
    """Seconds, on the watcher's monotonic clock."""
    epoch: int
    """Of the leader that said it: totals begin anew with each."""
    num_waiting: int
    oldest_wait_seconds: float
    num_running: int
    num_output_tokens_total: int | None


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    value: float


Series = Sequence[float | None]
"""Equal shares of the window, the newest last; None: not seen."""


class History:
    """Every model that was seen within the window, in order of appearance."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._samples: dict[str, deque[Sample]] = {}

    @property
    def models(self) -> list[str]:
        return list(self._samples)

    def add(self, status: QueueStatus, now: float) -> None:
        for model in status.models:
            samples = self._samples.setdefault(model.model, deque(maxlen=MAX_SAMPLES))
            samples.append(_sample(status, model, now))
        self._forget(now - self._window_seconds)

    def _forget(self, before: float) -> None:
        for model, samples in list(self._samples.items()):
            while samples and samples[0].at < before:
                samples.popleft()
            if not samples:
                del self._samples[model]

    def newest(self, model: str) -> Sample | None:
        samples = self._samples.get(model)
        return samples[-1] if samples else None

    def waiting(self, model: str, now: float, num_columns: int) -> Series:
        """Jobs; the most of each share, so that a short queue shows."""
        return self._columns(self._points(model, lambda sample: sample.num_waiting), now, num_columns, max)

    def oldest_wait(self, model: str, now: float, num_columns: int) -> Series:
        """Seconds; the most of each share."""
        return self._columns(self._points(model, lambda sample: sample.oldest_wait_seconds), now, num_columns, max)

    def running(self, model: str, now: float, num_columns: int) -> Series:
        """Sequences of all workers; the mean of each share."""
        return self._columns(self._points(model, lambda sample: sample.num_running), now, num_columns, _mean)

    def tokens_per_second(self, model: str, now: float, num_columns: int) -> Series:
        """Output tokens of all workers; the mean of each share."""
        return self._columns(self._rates(model), now, num_columns, _mean)

    def _points(self, model: str, value: Callable[[Sample], float]) -> Iterator[Point]:
        return (Point(sample.at, value(sample)) for sample in self._samples.get(model, ()))

    def _rates(self, model: str) -> Iterator[Point]:
        """Between every two samples of one leader."""
        samples = list(self._samples.get(model, ()))
        for before, after in pairwise(samples):
            start, end, seconds = before.num_output_tokens_total, after.num_output_tokens_total, after.at - before.at
            if start is not None and end is not None and before.epoch == after.epoch and seconds > 0:
                yield Point(after.at, (end - start) / seconds)

    def _columns(
        self, points: Iterator[Point], now: float, num_columns: int, combine: Callable[[list[float]], float]
    ) -> Series:
        """Bounds of the shares are fixed on the clock: a picture moves in whole columns and does not flicker."""
        share_seconds = self._window_seconds / num_columns
        newest = int(now // share_seconds)
        shares: list[list[float]] = [[] for _ in range(num_columns)]
        for point in points:
            age = newest - int(point.at // share_seconds)
            if 0 <= age < num_columns:
                shares[num_columns - 1 - age].append(point.value)
        return [combine(share) if share else None for share in shares]


def _sample(status: QueueStatus, model: ModelStatus, now: float) -> Sample:
    loads = [worker.load for worker in status.workers if worker.model == model.model and worker.is_connected]
    return Sample(
        at=now,
        epoch=status.epoch,
        num_waiting=model.num_waiting_jobs,
        oldest_wait_seconds=model.queue.oldest_wait_seconds,
        num_running=sum(load.num_running for load in loads if load is not None),
        num_output_tokens_total=model.num_output_tokens_total,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
