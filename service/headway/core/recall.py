"""Which prefetched jobs to take back from a full worker, because another could run them now.

A worker holds a few jobs that it has not started, to hide the round trip. While jobs wait that costs nothing; once
the queue is empty, a worker with free slots would idle beside one whose prefetched jobs wait. Only a job that has
not started for a while counts as stuck: without that age, a job would wander from worker to worker on its way in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.core.leased import Lease, Worker


@dataclass(slots=True)
class _Room:
    worker: Worker
    num_sequences: int
    num_pages: int

    def take(self, lease: Lease) -> bool:
        """Whether the job fits beside those promised already; if so it is promised too."""
        num_pages = self.worker.pages_for(lease.job)
        if self.worker is lease.worker or self.num_sequences <= 0 or self.num_pages < num_pages:
            return False
        self.num_sequences -= 1
        self.num_pages -= num_pages
        return True


def stuck_leases(workers: Iterable[Worker], granted_before: float) -> list[Lease]:
    """Leases that were granted before then and have not started, oldest first; recalls that are pending lead."""
    stuck = [
        lease
        for worker in workers
        for lease in worker.leases.values()
        if not (lease.started or lease.alone or lease.cancelling) and lease.granted_at <= granted_before
    ]
    return sorted(stuck, key=lambda lease: (not lease.is_recalled, lease.granted_at))


def leases_to_recall(workers: list[Worker], granted_before: float) -> list[Lease]:
    """Stuck leases that another of the (connected) workers has room for."""
    rooms = [
        _Room(worker, worker.spare_slots, worker.free_pages)
        for worker in sorted(workers, key=lambda worker: worker.fullness)
        if worker.spare_slots > 0 and not worker.runs_alone
    ]
    placed = [lease for lease in stuck_leases(workers, granted_before) if any(room.take(lease) for room in rooms)]
    return [lease for lease in placed if not lease.is_recalled]
