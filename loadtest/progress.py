"""How far a run is, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtest.recording import Timeline
from loadtest.statistics import summarise

TICK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    seconds: float
    """Since the start of the run."""
    num_requests: int
    num_sent: int
    num_ended: int
    num_tokens: int
    ttft_p50_seconds: float | None

    @classmethod
    def of(cls, timelines: Sequence[Timeline], now: float) -> Progress:
        """Costs a look at every request, so not for every step."""
        first_tokens = summarise(line.ttft_seconds for line in timelines)
        return cls(
            seconds=now,
            num_requests=len(timelines),
            num_sent=sum(line.sent_at is not None for line in timelines),
            num_ended=sum(line.ended_at is not None for line in timelines),
            num_tokens=sum(line.num_tokens for line in timelines),
            ttft_p50_seconds=None if first_tokens is None else first_tokens.p50,
        )

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        parts = [
            f"{self.num_sent} of {self.num_requests} sent",
            f"{self.num_sent - self.num_ended} running",
            f"{self.num_ended} done",
            f"{self.tokens_per_s:.1f} tokens/s",
        ]
        if self.ttft_p50_seconds is not None:
            parts.append(f"first token p50 {self.ttft_p50_seconds:.2f} s")
        return ", ".join(parts)


Watch = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """Watches."""


class Ticker:
    """Tells a watcher, not more often than anybody could read."""

    def __init__(self, timelines: Sequence[Timeline], watch: Watch) -> None:
        self._timelines = timelines
        self._watch = watch
        self._next_at = TICK_SECONDS

    def tick(self, now: float) -> None:
        """``now`` in seconds from the start of the run."""
        if self._watch is not nobody and now >= self._next_at:
            self._watch(Progress.of(self._timelines, now))
            self._next_at = now + TICK_SECONDS
