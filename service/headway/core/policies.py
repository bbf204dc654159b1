"""In which order waiting jobs are taken: fifo, shortest job first, weighted fair.

Waiting changes the order (promotion, aging), and yet no job is ever looked at again while it waits: what grows with
time grows at the same rate for all, so it cancels out of every comparison and leaves a rank that is fixed on arrival.

fifo
    A step of priority is worth ``promote_seconds`` of waiting. At any time t, job i goes before job j if
    priority_i + (t - arrival_i) / promote > priority_j + (t - arrival_j) / promote, that is, if
    arrival_i - promote · priority_i < arrival_j - promote · priority_j. So within a priority it is the stream's order,
    and a job of priority p is overtaken only by jobs of a priority q > p that come within (q - p) · promote
    seconds after it: finitely many, so nothing starves.

sjf
    Predicted work shrinks by ``aging_rate`` per second of waiting: job i goes before job j if
    work_i + rate · arrival_i < work_j + rate · arrival_j. So j is overtaken only by jobs with
    arrival_i < arrival_j + (work_j - work_i) / rate. **Bound**: with W the most work of a job, no job waits for one
    that comes more than W / rate seconds after it; its wait is at most the time that the workers need for what was
    there when it came and for what comes within (work_j / rate) after it. ``rate`` is the trade-off: towards 0 this
    is pure shortest job first, towards infinity it is fifo.

weighted fair (`core.fairness`) chooses the tenant, then takes that tenant's jobs in fifo order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

from headway.core.ordered import FirstFit, Rank
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob


class Policy(ABC):
    """An order over the waiting jobs. Every method costs O(log n)."""

    @abstractmethod
    def add(self, job: QueuedJob) -> None:
        """Puts the job in its place; the place is chosen on the first call and then kept in ``job.rank``."""

    @abstractmethod
    def remove(self, job: QueuedJob) -> None: ...

    @abstractmethod
    def hide(self, job: QueuedJob, hidden: bool) -> None:
        """A hidden job keeps its place but is never `first`."""

    @abstractmethod
    def first(self, max_tokens: float) -> QueuedJob | None:
        """The first job in order that needs at most ``max_tokens`` (`QueuedJob.num_tokens`)."""

    def charge(self, tenant: str, work: float) -> None:  # noqa: B027 - a policy may ignore it
        """The tenant received service: weighted tokens, negative for a refund."""

    def counters(self) -> dict[str, float]:
        """What a later leader needs to go on fairly."""
        return {}

    def restore(self, counters: Mapping[str, float]) -> None:  # noqa: B027 - a policy may ignore it
        """Takes over an earlier leader's `counters`, before any job is added."""


class Ranking(ABC):
    """Where a job belongs among all jobs, by facts that hold from its arrival on."""

    @abstractmethod
    def rank(self, job: QueuedJob) -> Rank: ...


class FifoRanking(Ranking):
    """Stream order within a priority, a step of priority being worth ``promote_seconds``."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._last_sequence = -1
        self._last_arrival = -math.inf

    def rank(self, job: QueuedJob) -> Rank:
        priority = self._config.priority(job.key.tenant, job.priority)
        return Rank(self._arrival(job) - priority * self._config.promote_seconds, job.stream_sequence)

    def _arrival(self, job: QueuedJob) -> float:
        """The broker's timestamp, unless its clock ran backwards (another broker leads): the stream's order holds."""
        if job.stream_sequence < self._last_sequence:
            return job.arrival_seconds
        self._last_sequence = job.stream_sequence
        self._last_arrival = max(self._last_arrival, job.arrival_seconds)
        return self._last_arrival


class ShortestFirstRanking(Ranking):
    """Least predicted work first, with aging."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config

    def rank(self, job: QueuedJob) -> Rank:
        assert job.num_predicted_tokens is not None, "predicted when queued"
        work = self._config.work(job.num_prompt_tokens, job.num_predicted_tokens)
        return Rank(work + self._config.aging_rate * job.arrival_seconds, job.stream_sequence)


class JobOrder:
    """Waiting jobs in the order of their ranks."""

    def __init__(self) -> None:
        self._jobs: FirstFit[QueuedJob] = FirstFit()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def least_tokens(self) -> float:
        """What the smallest job needs that is not hidden; infinite if there is none."""
        return self._jobs.least_size

    def add(self, job: QueuedJob) -> None:
        self._jobs.insert(_rank_of(job), job.num_tokens, job)

    def remove(self, job: QueuedJob) -> None:
        self._jobs.discard(_rank_of(job))

    def hide(self, job: QueuedJob, hidden: bool) -> None:
        self._jobs.resize(_rank_of(job), math.inf if hidden else job.num_tokens)

    def first(self, max_tokens: float) -> QueuedJob | None:
        return self._jobs.first(max_tokens)


class RankedPolicy(Policy):
    """One order over the jobs of all tenants: fifo and sjf."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._order = JobOrder()

    def add(self, job: QueuedJob) -> None:
        if job.rank is None:
            job.rank = self._ranking.rank(job)
        self._order.add(job)

    def remove(self, job: QueuedJob) -> None:
        self._order.remove(job)

    def hide(self, job: QueuedJob, hidden: bool) -> None:
        self._order.hide(job, hidden)

    def first(self, max_tokens: float) -> QueuedJob | None:
        return self._order.first(max_tokens)


def _rank_of(job: QueuedJob) -> Rank:
    assert job.rank is not None, f"{job.key} has no place yet"
    return job.rank
