"""The leader's figures: totals since it took over, capacities last seen, and the status made from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headway.core.lease_messages import Hello
from headway.core.leased import Worker
from headway.core.queued_job import QueuedJob
from headway.core.status import ModelStatus, WorkerCapacity, WorkerStatus
from headway.core.waiting_jobs import WaitingJobs


class Figures:
    """Everything is by model."""

    def __init__(self, capacities: Mapping[str, WorkerCapacity]) -> None:
        self._capacities = dict(capacities)
        self._num_grants: Counter[str] = Counter()
        self._num_lost_attempts: Counter[str] = Counter()

    @property
    def capacities(self) -> dict[str, WorkerCapacity]:
        return dict(self._capacities)

    def saw(self, hello: Hello) -> None:
        self._capacities[hello.model] = _capacity(hello)

    def granted(self, model: str) -> None:
        self._num_grants[model] += 1

    def lost(self, model: str, num_attempts: int) -> None:
        self._num_lost_attempts[model] += num_attempts

    def of_model(self, model: str, waiting: WaitingJobs, leased: Sequence[QueuedJob], now: float) -> ModelStatus:
        capacity = self._capacities.get(model)
        queue = waiting.queue.stats(now, capacity.page_size if capacity else 1)
        beside = waiting.beside_the_queue
        num_pages = None
        if capacity is not None:
            others = sum(job.num_pages(capacity.page_size) for job in [*beside, *leased])
            num_pages = queue.num_backlog_pages + others
        return ModelStatus(
            model=model,
            queue=queue,
            num_waiting_beside=len(beside),
            num_leased_jobs=len(leased),
            num_grants_total=self._num_grants[model],
            num_lost_attempts_total=self._num_lost_attempts[model],
            capacity=capacity,
            num_outstanding_pages=num_pages,
            num_output_tokens_total=waiting.queue.num_output_tokens_total,
        )


def worker_status(worker: Worker) -> WorkerStatus:
    hello = worker.hello
    return WorkerStatus(
        incarnation=hello.incarnation,
        name=hello.name,
        model=hello.model,
        is_connected=worker.stream is not None,
        capacity=_capacity(hello),
        max_num_seqs=hello.max_num_seqs,
        num_held_jobs=len(worker.leases),
        num_started_jobs=sum(lease.started for lease in worker.leases.values()),
        load=worker.load,
    )


def _capacity(hello: Hello) -> WorkerCapacity:
    return WorkerCapacity(hello.num_pages, hello.page_size, hello.max_num_seqs)
