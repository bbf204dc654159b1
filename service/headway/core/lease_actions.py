"""What the leader's state machine asks its role to do; carry them out in the order given.

`Leases` decides and these name the effects, so that it is tested without a network, a broker or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import LeaderMessage
from headway.core.queued_job import QueuedJob
from headway.core.records import ErrorInfo


@dataclass(frozen=True, slots=True)
class Send:
    """Send the message on the stream. The payload of a `Grant` is still empty: the role fills it in."""

    stream: int
    message: LeaderMessage


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the stream; a worker that is alive connects again and says anew what it holds."""

    stream: int
    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Ack the job's message (`stream_sequence`): its ``end`` is stored, or it is another job's repeat."""

    job: QueuedJob


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """Write the ``end`` of a job that no worker runs, then call `Leases.ended_by_leader`."""

    job: QueuedJob
    finish_reason: FinishReason
    error: ErrorInfo | None = None


class DeadReason(StrEnum):
    """Why a job is recorded in ``HEADWAY_DEAD``."""

    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class WriteDead:
    """Record the job among the dead ones. It may be asked for twice, after a takeover."""

    model: str
    job: QueuedJob
    reason: DeadReason


class CancelOutcome(StrEnum):
    CANCELLED = "cancelled"
    ENDED = "ended"
    """The job came to another end first."""
    NOT_FOUND = "not_found"
    """Not outstanding: it has ended, or never was."""


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """Answers everyone who asked to cancel this job; its ``end`` is stored."""

    key: JobKey
    outcome: CancelOutcome
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class GiveWay:
    """A higher epoch has been given out: stop leading. Whoever leads next needs one above it."""

    to: int


Action = Send | Drop | Settle | WriteEnd | WriteDead | CancelAnswer | GiveWay
