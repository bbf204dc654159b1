"""One model's waiting jobs: the queue in policy order, and beside it those that must not wait in it.

- *Suspects* have lost so many attempts that they may be what kills their workers. A suspect is granted alone, so that
  it takes no neighbours down: to a worker that holds nothing, ahead of the queue. Busy workers never empty by
  themselves, so one is reserved for the suspects: it gets nothing else until it is empty. The price is a moment of an
  emptier batch on one worker, for jobs that are rare.
- *Oversized* jobs look larger than all the pages of the largest worker. In the queue they would fit nobody, ever, and
  their clients would hear nothing. They go to that worker without regard to its free pages: it counts the tokens
  (ours are estimates for texts), and answers with a rejection if the job is really too long.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.job import JobKey
from headway.core.leased import Worker
from headway.core.queue import JobQueue
from headway.core.queued_job import QueuedJob, WorkerRoom


@dataclass(frozen=True, slots=True)
class TakenJob:
    job: QueuedJob
    alone: bool


class WaitingJobs:
    """A `JobQueue` that knows suspects and oversized jobs."""

    def __init__(self, queue: JobQueue, max_shared_attempts: int) -> None:
        self.queue = queue
        self._max_shared_attempts = max_shared_attempts
        self._suspects: dict[JobKey, QueuedJob] = {}
        self._oversized: dict[JobKey, QueuedJob] = {}
        self._workers: list[Worker] = []
        self._reserved: Worker | None = None
        self._largest: Worker | None = None

    def __len__(self) -> int:
        return len(self.queue) + len(self._suspects) + len(self._oversized)

    @property
    def beside_the_queue(self) -> list[QueuedJob]:
        return [*self._suspects.values(), *self._oversized.values()]

    def get(self, key: JobKey) -> QueuedJob | None:
        return self._suspects.get(key) or self._oversized.get(key) or self.queue.get(key)

    def add(self, job: QueuedJob, now: float) -> None:
        if job.num_lost_attempts >= self._max_shared_attempts:
            self._suspects[job.key] = job
        elif self._largest is not None and self._largest.pages_for(job) > self._largest.hello.num_pages:
            self._oversized[job.key] = job
        else:
            self.queue.add(job, now)

    def discard(self, key: JobKey) -> QueuedJob | None:
        return self._suspects.pop(key, None) or self._oversized.pop(key, None) or self.queue.discard(key)

    def expire(self, now: float) -> list[QueuedJob]:
        late = [job for job in self.beside_the_queue if job.is_expired(now)]
        for job in late:
            self.discard(job.key)
        return late + self.queue.expire(now)

    def meet(self, workers: list[Worker]) -> None:
        """These are the workers that are connected now."""
        self._workers = workers
        self._largest = max(workers, key=lambda worker: worker.num_slots, default=None)

    def leave(self, worker: Worker) -> None:
        """The worker is gone; no job waits for it any longer."""
        self.queue.release_worker(worker.hello.incarnation)

    def take(self, worker: Worker, now: float) -> TakenJob | None:
        """The next job for this worker, or None if it should get none now."""
        if self._suspects and not worker.leases:
            return _take_oldest(self._suspects, alone=True)
        if worker is self._reserved_for_suspects() or worker.runs_alone:
            return None
        if self._oversized and worker is self._largest:
            return _take_oldest(self._oversized, alone=False)
        job = self.queue.take(now, self._room(worker))
        return None if job is None else TakenJob(job, alone=False)

    def _reserved_for_suspects(self) -> Worker | None:
        """The worker that had the least to finish when it was chosen; it stays chosen while there are suspects."""
        if not self._suspects:
            self._reserved = None
        elif self._reserved not in self._workers:
            self._reserved = min(self._workers, key=lambda worker: len(worker.leases), default=None)
        return self._reserved

    def _room(self, worker: Worker) -> WorkerRoom:
        """Its free pages; when it is empty it takes what is oversized too (queued before any worker was known)."""
        hello, num_pages = worker.hello, worker.free_pages
        if worker is self._largest and not worker.leases:
            num_pages = max(num_pages, _ANY_NUMBER_OF_PAGES)
        return WorkerRoom(hello.incarnation, num_pages, hello.page_size, hello.num_pages)


_ANY_NUMBER_OF_PAGES = 2**40


def _take_oldest(jobs: dict[JobKey, QueuedJob], alone: bool) -> TakenJob:
    job = jobs.pop(min(jobs.values(), key=lambda job: job.stream_sequence).key)
    job.num_grants += 1  # as the queue does for its own: the job's tokens are this leader's to charge
    return TakenJob(job, alone)
