"""The state of the leader for people and metrics: `headway top`, autoscaling, Prometheus.

What is not known is None, never a number: an autoscaler that is told 0 for "no data" acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.lease_messages import WorkerLoad
from headway.core.stats import QueueStats


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """What one worker of a model holds at once."""

    num_pages: int
    page_size: int
    max_num_seqs: int | None = None
    """None if it was seen by a version that did not write it down."""


@dataclass(frozen=True, slots=True)
class LastSeen:
    """What a leader leaves to its successor, beside the stream: stored every few seconds, read at takeover."""

    workers: frozenset[str] | None = None
    """Incarnations. A new leader waits a grace for them to say what they run; None: not known, so wait it out."""
    capacities: Mapping[str, WorkerCapacity] = field(default_factory=dict)
    """By model, so that scaling from zero knows what one worker is worth."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    incarnation: str
    name: str
    model: str
    is_connected: bool
    capacity: WorkerCapacity
    max_num_seqs: int
    num_held_jobs: int
    """Granted to it and not settled."""
    num_started_jobs: int
    load: WorkerLoad | None
    """None until it has reported."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    model: str
    queue: QueueStats
    """The jobs that wait in the queue."""
    num_waiting_beside: int
    """Jobs that wait beside it: to be granted alone, or too large as it seems."""
    num_leased_jobs: int
    num_grants_total: int
    num_lost_attempts_total: int
    """Both since this leader took over."""
    capacity: WorkerCapacity | None
    """Of the worker that connected last, kept when it has left; None if there never was one."""
    num_outstanding_pages: int | None
    """Pages that the outstanding jobs will hold at their end, by prediction; None without a capacity."""
    num_output_tokens_total: int | None = None
    """That workers have reported to this leader; None from a leader of a version that did not count them."""

    @property
    def num_waiting_jobs(self) -> int:
        return self.queue.num_waiting + self.num_waiting_beside

    @property
    def num_outstanding_jobs(self) -> int:
        return self.num_waiting_jobs + self.num_leased_jobs

    @property
    def workers_needed(self) -> float | None:
        """Workers that would run every outstanding job at once; None without a capacity.

        A worker is full when its pages are (long jobs), or when it runs ``max_num_seqs`` of them (short ones).
        """
        if self.capacity is None or self.num_outstanding_pages is None:
            return None
        by_pages = self.num_outstanding_pages / self.capacity.num_pages
        if self.capacity.max_num_seqs is None:
            return by_pages
        return max(by_pages, self.num_outstanding_jobs / self.capacity.max_num_seqs)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    epoch: int
    is_granting: bool
    """False during the grace after a takeover."""
    models: tuple[ModelStatus, ...]
    workers: tuple[WorkerStatus, ...]
