"""The lease protocol's messages, as plain data; `headway.lease` carries them over gRPC.

    worker ── Hello, then Demand / Progress / Ended / Returned / Refused ──▶ leader
    worker ◀─ Welcome or Redirect, then Grant / Recall / CancelJob ───────── leader

Every message about a job names its grant, so that a message about an older grant can never touch a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.job import FinishReason, JobKey
from headway.core.records import GrantToken


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker still has when it connects."""

    key: JobKey
    grant: GrantToken
    started: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a stream. A worker is identified by its incarnation; its newest stream wins."""

    incarnation: str
    """Random per start of the process."""
    name: str
    """For people and for the log: the pod's name."""
    model: str
    page_size: int
    num_pages: int
    max_num_seqs: int
    held: tuple[HeldJob, ...] = ()
    newest_epoch: int = 0
    """The highest that it has heard of. A leader with a lower one is a former one, or the state bucket was lost."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the worker could take now, with every grant up to ``last_grant`` already counted in."""

    num_sequences: int
    num_pages: int
    last_grant: int = 0
    """Number of the newest grant received in this stream; 0 before the first."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Cumulative high-water marks of one granted job."""

    key: JobKey
    grant: GrantToken
    started: bool
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """The worker's state for people and metrics (`headway top`, autoscaling)."""

    num_running: int
    num_waiting: int
    num_free_pages: int
    step_seconds: float
    """Moving mean of the step time."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Sent every few steps, and as the heartbeat of an idle worker."""

    jobs: tuple[JobProgress, ...]
    """Every job that the worker holds: what is missing here it does not have, and the leader takes it back."""
    load: WorkerLoad


@dataclass(frozen=True, slots=True)
class Ended:
    """The job's ``end`` record is stored (or was, before this grant)."""

    key: JobKey
    grant: GrantToken
    finish_reason: FinishReason
    num_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Returned:
    """The worker gives the job back: drained, recalled before it started, or unable to run it now."""

    key: JobKey
    grant: GrantToken
    reason: str
    num_lost_attempts: int = 0
    """Attempts that the job's log counts as lost, where the worker knows (an attempt that its own engine's crash
    ended included): more than the grant said means that the leader has to decide anew (alone, or dead)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker dropped the grant: the log belongs to a newer one, or to another job (``conflict``)."""

    key: JobKey
    grant: GrantToken
    conflict: bool
    newest_epoch: int = 0
    """Of the grants in that log; see `Hello.newest_epoch`."""


WorkerMessage = Hello | Demand | Progress | Ended | Returned | Refused


@dataclass(frozen=True, slots=True)
class Welcome:
    epoch: int
    lease_seconds: float
    """A worker that is silent for this long loses its jobs."""


@dataclass(frozen=True, slots=True)
class Redirect:
    """This process does not lead; the leader's ``host:port``, or None while nobody leads."""

    address: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """One job for one worker. The payload is the client's own bytes: the worker decodes what the leader did."""

    key: JobKey
    token: GrantToken
    stream_sequence: int
    payload: bytes
    arrival_seconds: float
    """The broker's timestamp of the job, seconds since the epoch."""
    queue_seconds: float
    """From the job's arrival to this grant, on the leader's clock."""
    deadline_seconds: float | None = None
    """Seconds left, not a wall-clock time."""
    alone: bool = False
    """Run nothing beside it (a job that lost two attempts)."""
    num_lost_attempts: int = 0
    """What the leader knows of; a new leader may know less than the job's log."""
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """Give the job back if it has not started; answered by `Returned`, or by its going on."""

    key: JobKey
    grant: GrantToken


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End the job with ``reason``; answered by `Ended`."""

    key: JobKey
    grant: GrantToken
    reason: FinishReason


LeaderMessage = Welcome | Redirect | Grant | Recall | CancelJob
