"""What one run leaves behind: the times of each request and the steps of the engine, not yet summed up.

Every time is in seconds from the start of the run. A request's clock starts when it was *due*, not when the load
generator got round to sending it, so a generator that falls behind cannot hide the wait (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.core.job import FinishReason
from headway.core.stats import SchedulerStats, StepStats
from headway.engine.messages import StepReport


@dataclass(slots=True)
class Timeline:
    """One request as its client saw it."""

    due_at: float
    num_expected_tokens: int
    num_tokens: int = 0
    first_token_at: float | None = None
    last_token_at: float | None = None
    ended_at: float | None = None
    finish_reason: FinishReason | None = None

    def receive(self, num_tokens: int, now: float) -> None:
        if not num_tokens:
            return
        self.num_tokens += num_tokens
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now

    def end(self, reason: FinishReason, now: float) -> None:
        self.finish_reason = reason
        self.ended_at = now

    @property
    def is_complete(self) -> bool:
        """Whether it did the work that was asked for, no more and no less."""
        return self.finish_reason is FinishReason.LENGTH and self.num_tokens == self.num_expected_tokens

    @property
    def ttft_seconds(self) -> float | None:
        return None if self.first_token_at is None else self.first_token_at - self.due_at

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time per output token after the first; None where there is no second one."""
        if self.first_token_at is None or self.last_token_at is None or self.num_tokens < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (self.num_tokens - 1)

    @property
    def e2e_seconds(self) -> float | None:
        return None if self.ended_at is None else self.ended_at - self.due_at


@dataclass(slots=True)
class StepLog:
    """The engine's reports. Counters are counted from the first report, so a warm-up does not show."""

    steps: list[StepStats] = field(default_factory=list)
    first: SchedulerStats | None = None
    """Before the run."""
    last: SchedulerStats | None = None

    def add(self, report: StepReport) -> None:
        if self.first is None:
            self.first = report.scheduler
        elif report.step is not None:
            self.steps.append(report.step)
        self.last = report.scheduler

    def since_first(self, counter: str) -> int:
        """How much a counter of `SchedulerStats` rose during the run."""
        if self.first is None or self.last is None:
            return 0
        return int(getattr(self.last, counter)) - int(getattr(self.first, counter))

    @property
    def slot_utilisation(self) -> float | None:
        """Slots that computed something, of those that there were in all steps."""
        num_slots = self.since_first("num_slots_total")
        return self.since_first("num_busy_slots_total") / num_slots if num_slots else None


@dataclass(frozen=True, slots=True)
class Recording:
    timelines: Sequence[Timeline]
    steps: StepLog
    cpu_seconds: Mapping[str, float]
    """User and system time that each process spent during the run."""

    @property
    def completed(self) -> list[Timeline]:
        return [timeline for timeline in self.timelines if timeline.is_complete]

    @property
    def num_output_tokens(self) -> int:
        return sum(timeline.num_tokens for timeline in self.timelines)

    @property
    def duration_seconds(self) -> float:
        """From the moment that the first request is due to the end of the last."""
        ended = [timeline.ended_at for timeline in self.timelines if timeline.ended_at is not None]
        return max(ended) - min(timeline.due_at for timeline in self.timelines) if ended else 0.0
