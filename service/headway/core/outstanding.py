"""Where every outstanding job is, and every way from place to place.

    waiting ──hold──▶ leased ──settle──▶ gone
       ▲                │
       └── take_back ───┤
                        └── end ──▶ ending ──settle──▶ gone

A job is in exactly one place: waiting (`WaitingJobs`), leased (one `Lease`), or ending (the leader writes its ``end``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import (
    Action,
    CancelAnswer,
    CancelOutcome,
    DeadReason,
    Send,
    Settle,
    WriteDead,
    WriteEnd,
)
from headway.core.lease_messages import CancelJob
from headway.core.lease_terms import LeaseTerms
from headway.core.leased import Lease
from headway.core.queue import JobQueue
from headway.core.queued_job import QueuedJob
from headway.core.records import ErrorInfo
from headway.core.waiting_jobs import WaitingJobs

WHOLE = (FinishReason.STOP, FinishReason.LENGTH)
"""Ends of jobs that ran as long as they were meant to."""


@dataclass(frozen=True, slots=True)
class OutstandingJob:
    model: str
    job: QueuedJob


class OutstandingJobs:
    """The jobs that have no stored end yet, and who wants to hear of their end."""

    def __init__(self, queues: Mapping[str, JobQueue], terms: LeaseTerms) -> None:
        self.waiting = {model: WaitingJobs(queue, terms.max_shared_attempts) for model, queue in queues.items()}
        self._terms = terms
        self._leases: dict[JobKey, Lease] = {}
        self._ending: dict[JobKey, OutstandingJob] = {}
        self._cancels: set[JobKey] = set()
        self._num_bytes: Counter[str] = Counter()
        """By tenant."""

    def __len__(self) -> int:
        return len(self._leases) + len(self._ending) + sum(map(len, self.waiting.values()))

    def find(self, key: JobKey) -> OutstandingJob | None:
        lease = self._leases.get(key)
        if lease is not None:
            return OutstandingJob(lease.model, lease.job)
        waiting = ((model, jobs.get(key)) for model, jobs in self.waiting.items())
        return self._ending.get(key) or next((OutstandingJob(model, job) for model, job in waiting if job), None)

    def num_bytes(self, tenant: str) -> int:
        """Of the payloads of all its outstanding jobs."""
        return self._num_bytes[tenant]

    def took_in(self, job: QueuedJob) -> None:
        """It is outstanding from now on."""
        self._num_bytes[job.key.tenant] += job.num_bytes

    def leased(self, model: str) -> list[QueuedJob]:
        return [lease.job for lease in self._leases.values() if lease.model == model]

    def add_again(self, known: OutstandingJob, again: OutstandingJob) -> list[Action]:
        """A message with the identity of an outstanding job: the same message, a repeat, or a conflict."""
        if again.job.stream_sequence == known.job.stream_sequence:
            return []
        if again.model == known.model and again.job.payload_hash == known.job.payload_hash:
            return [Settle(again.job)]
        return [WriteDead(again.model, again.job, DeadReason.CONFLICT), Settle(again.job)]

    def cancel(self, key: JobKey) -> list[Action]:
        self._cancels.add(key)
        lease = self._leases.get(key)
        if lease is not None:
            lease.cancelling = FinishReason.CANCELLED
            return cancel_leased(lease)
        if key in self._ending:
            return []
        for model, waiting in self.waiting.items():
            job = waiting.discard(key)
            if job is not None:
                return self.end(model, job, FinishReason.CANCELLED)
        self._cancels.remove(key)
        return [CancelAnswer(key, CancelOutcome.NOT_FOUND)]

    def hold(self, lease: Lease) -> None:
        self._leases[lease.job.key] = lease
        lease.worker.leases[lease.job.key] = lease

    def take_back(self, lease: Lease, num_lost_attempts: int, now: float) -> list[Action]:
        """The job waits again at its own place, unless it was to be cancelled or has no attempt left."""
        job = lease.job
        self._release(lease)
        job.num_lost_attempts = max(job.num_lost_attempts, num_lost_attempts)
        job.came_back_at = now
        if lease.cancelling is not None:
            return self.end(lease.model, job, lease.cancelling)
        if job.num_lost_attempts >= self._terms.max_attempts:
            error = ErrorInfo("attempts_exhausted", None, f"{job.num_lost_attempts} attempts were lost")
            dead = WriteDead(lease.model, job, DeadReason.ATTEMPTS_EXHAUSTED)
            return [dead, *self.end(lease.model, job, FinishReason.ERROR, error)]
        self.waiting[lease.model].add(job, now)
        return []

    def end(self, model: str, job: QueuedJob, reason: FinishReason, error: ErrorInfo | None = None) -> list[Action]:
        """The leader writes the end of a job that is neither waiting nor leased any more."""
        self._ending[job.key] = OutstandingJob(model, job)
        return [WriteEnd(job, reason, error)]

    def settle_ending(self, key: JobKey, reason: FinishReason) -> list[Action]:
        ending = self._ending.pop(key, None)
        return [] if ending is None else self._settle(ending, None, reason)

    def settle_leased(self, lease: Lease, num_output_tokens: int | None, reason: FinishReason) -> list[Action]:
        self._release(lease)
        return self._settle(OutstandingJob(lease.model, lease.job), num_output_tokens, reason)

    def _release(self, lease: Lease) -> None:
        """The one way out of a lease."""
        del self._leases[lease.job.key]
        lease.worker.forget(lease)

    def _settle(self, ended: OutstandingJob, num_output_tokens: int | None, reason: FinishReason) -> list[Action]:
        tenant = ended.job.key.tenant
        self._num_bytes[tenant] -= ended.job.num_bytes
        if not self._num_bytes[tenant]:
            del self._num_bytes[tenant]
        self.waiting[ended.model].queue.settle(ended.job, num_output_tokens, is_whole=reason in WHOLE)
        return [Settle(ended.job), *self._answer(ended.job.key, reason)]

    def _answer(self, key: JobKey, reason: FinishReason) -> list[Action]:
        if key not in self._cancels:
            return []
        self._cancels.remove(key)
        cancelled = reason is FinishReason.CANCELLED
        return [CancelAnswer(key, CancelOutcome.CANCELLED if cancelled else CancelOutcome.ENDED, reason)]


def cancel_leased(lease: Lease) -> list[Action]:
    """Tell the worker, if it can be told now; else it hears when it is back, or the job is ended without it."""
    if lease.worker.stream is None or lease.cancelling is None:
        return []
    return [Send(lease.worker.stream, CancelJob(lease.job.key, lease.token, lease.cancelling))]
