"""What one run leaves behind: the times of each request and the steps of the engine, not yet summed up.

Every time is in seconds from the start of the run. A request's clock starts when it was *due*, not when the load
generator got round to sending it, so a generator that falls behind cannot hide the wait (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.job import FinishReason
from headway.core.stats import SchedulerStats, StepStats
from headway.engine.messages import StepReport
from loadtest.workloads.requests import DEFAULT_TENANT, Request


class Outcome(StrEnum):
    """Exactly one holds of every request."""

    COMPLETED = "completed"
    """It ended by length, with exactly the tokens that were asked for."""
    CANCELLED = "cancelled"
    """Its client gave up, as it was meant to."""
    FAILED = "failed"
    """It ended otherwise than asked."""
    LOST = "lost"
    """It never ended."""


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
    tenant: str = DEFAULT_TENANT
    label: str | None = None
    num_prompt_tokens: int = 0
    queue_seconds: float | None = None
    """From when it was due until it was granted or first scheduled; None where the target cannot tell."""
    gaps: list[float] = field(default_factory=list)
    """Between two deliveries of tokens."""
    sent_at: float | None = None
    has_given_up: bool = False
    """Its client has asked for a cancel."""

    @classmethod
    def of(cls, request: Request) -> Timeline:
        """Before anything has happened to it."""
        return cls(
            0.0,
            request.num_output_tokens,
            tenant=request.tenant,
            label=request.label,
            num_prompt_tokens=len(request.prompt_token_ids),
        )

    def send(self, due_at: float, now: float) -> None:
        self.due_at = due_at
        self.sent_at = now

    def receive(self, num_tokens: int, now: float) -> None:
        if not num_tokens:
            return
        if self.last_token_at is not None:
            self.gaps.append(now - self.last_token_at)
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
    def outcome(self) -> Outcome:
        if self.is_complete:
            return Outcome.COMPLETED
        if self.has_given_up and self.finish_reason is FinishReason.CANCELLED:
            return Outcome.CANCELLED
        return Outcome.LOST if self.finish_reason is None else Outcome.FAILED

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

    @property
    def max_gap_seconds(self) -> float | None:
        return max(self.gaps, default=None)


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The engine after a step."""

    at: float
    num_running: int


@dataclass(slots=True)
class StepLog:
    """The engine's reports. Counters are counted from the first report, so a warm-up does not show."""

    steps: list[StepStats] = field(default_factory=list)
    first: SchedulerStats | None = None
    """Before the run."""
    last: SchedulerStats | None = None
    ends: list[StepEnd] = field(default_factory=list)
    """One for each of ``steps``, where times are known."""

    def add(self, report: StepReport, now: float | None = None) -> None:
        """``now``: when the report came, if anybody wants to know."""
        if self.first is None:
            self.first = report.scheduler
        elif report.step is not None:
            self.steps.append(report.step)
            if now is not None:
                self.ends.append(StepEnd(now, report.scheduler.num_running))
        self.last = report.scheduler

    def counted_from(self, started: float) -> StepLog:
        """The same with times in seconds from that moment."""
        ends = [StepEnd(end.at - started, end.num_running) for end in self.ends]
        return StepLog(self.steps, self.first, self.last, ends)

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
    errors: Mapping[str, int] = field(default_factory=dict)
    """What requests failed or were lost with, in words, and how many of them."""

    @property
    def completed(self) -> list[Timeline]:
        return [timeline for timeline in self.timelines if timeline.is_complete]

    @property
    def num_output_tokens(self) -> int:
        return sum(timeline.num_tokens for timeline in self.timelines)

    @property
    def duration_seconds(self) -> float:
        """From the moment that the first request is due to the end of the last, or to the last token of one that never
        ended: what is counted came within it."""
        seen = (moment for line in self.timelines for moment in (line.ended_at, line.last_token_at))
        ended_at = max((moment for moment in seen if moment is not None), default=None)
        return 0.0 if ended_at is None else ended_at - min(timeline.due_at for timeline in self.timelines)
