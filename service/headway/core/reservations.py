"""What happens to a job that does not fit: it is passed over, and after a while a worker is kept for it.

Small jobs may pass a big one that does not fit the worker that asks: an idle page serves nobody. But they could do so
for ever. So a job that was passed over ``max_bypass`` times reserves the next worker that could hold it once empty:
that worker gets nothing else until the job fits there.

- One worker only is kept: the others go on, so small jobs do not starve. The reserved job also takes any other
  worker on which it happens to fit first.
- A job that is larger than a worker is nothing to that worker: it is neither counted nor in the way of the jobs
  behind it. One that fits no worker at all hence never reserves anything.
- Of several jobs in front that do not fit, the first is counted. The others come first in their turn, so everything
  that some worker can hold is taken after finitely many grants.
- A reservation lapses after ``max_reserve_seconds`` (the worker may be gone), and the count begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.policies import Policy
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob, WorkerRoom


@dataclass(frozen=True, slots=True)
class Reservation:
    worker: str
    job: QueuedJob
    until: float


class Reservations:
    """Chooses the next job for a worker; a reserved job is hidden in the policy's order meanwhile."""

    def __init__(self, config: QueueConfig, policy: Policy) -> None:
        self._config = config
        self._policy = policy
        self._by_worker: dict[str, Reservation] = {}

    def choose(self, now: float, room: WorkerRoom) -> QueuedJob | None:
        """The job that this worker should have next; None: none fits, or it must wait until its reserved one does."""
        self._lapse(now)
        own = self._by_worker.get(room.worker)
        if own is not None:
            return own.job if room.fits(own.job) else None
        return self._reserved_that_fits(room) or self._first_that_fits(now, room)

    def release(self, job: QueuedJob) -> None:
        """The job is no longer waiting."""
        for worker in [worker for worker, held in self._by_worker.items() if held.job is job]:
            del self._by_worker[worker]

    def release_worker(self, worker: str) -> None:
        """The worker is gone: its job goes on with the next one, at once."""
        held = self._by_worker.pop(worker, None)
        if held is not None:
            self._policy.hide(held.job, False)

    def _reserved_that_fits(self, room: WorkerRoom) -> QueuedJob | None:
        """A job reserved elsewhere, the longest reserved first; there are at most as many as workers."""
        return next((held.job for held in self._by_worker.values() if room.fits(held.job)), None)

    def _first_that_fits(self, now: float, room: WorkerRoom) -> QueuedJob | None:
        chosen = self._policy.first(room.max_tokens)
        front = self._policy.first(room.max_tokens_once_empty)
        if chosen is None or front is None or chosen is front:
            return chosen
        if front.num_bypasses < self._config.max_bypass:
            front.num_bypasses += 1
            return chosen
        self._by_worker[room.worker] = Reservation(room.worker, front, now + self._config.max_reserve_seconds)
        self._policy.hide(front, True)
        return None

    def _lapse(self, now: float) -> None:
        for held in [held for held in self._by_worker.values() if held.until <= now]:
            held.job.num_bypasses = 0
            self.release_worker(held.worker)
