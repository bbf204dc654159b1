"""What one queue leader leaves to the next, beside the streams: who was connected, what workers hold, who was served.

It is saved every few seconds and at the end. A successor that finds it old or missing is still right, only less fair
at first, or slower by its grace. For the same reason nobody looks whether it is still there: if the bucket is made
anew under a running leader, a value comes back only with its next change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from headway.broker.state import StateStore
from headway.core.leases import Leases
from headway.core.queue import JobQueue, QueueConfig
from headway.core.status import LastSeen, WorkerCapacity


class Succession:
    """Reads what the last leader left, and writes for the next one. Raises `BrokerError` while NATS is away.

    ``may_write`` is asked before every write: a former leader must not spoil what its successor has saved since.
    """

    def __init__(self, store: StateStore, models: tuple[str, ...], may_write: Callable[[], bool]) -> None:
        self._store = store
        self._models = models
        self._may_write = may_write
        self._saved: dict[str, object] = {}
        """What stands in the store, as far as this leader wrote it: only what changed is written again."""

    async def last_seen(self) -> LastSeen:
        """Read it before the epoch is raised, which tells a first leader from a later one."""
        capacities = {}
        for model in self._models:
            capacity = await self._store.capacity(model)
            if capacity is not None:
                capacities[model] = WorkerCapacity(capacity.num_pages, capacity.page_size, capacity.max_num_seqs)
        return LastSeen(await self._store.workers(), capacities)

    async def queues(self, config: QueueConfig) -> dict[str, JobQueue]:
        """An empty queue per model, with the fairness counters as they were saved."""
        queues = {model: JobQueue(config) for model in self._models}
        for model, queue in queues.items():
            saved = await self._store.counters(model)
            if saved is not None:
                queue.restore_counters(saved.counters)
        return queues

    async def save(self, leases: Leases, now: float) -> None:
        """``now``: seconds since the epoch."""
        last_seen = leases.last_seen()
        for model, capacity in last_seen.capacities.items():
            put = partial(
                self._store.put_capacity, model, capacity.num_pages, capacity.page_size, capacity.max_num_seqs
            )
            await self._save_changed(f"capacity {model}", capacity, put)
        workers = last_seen.workers or frozenset()
        await self._save_changed("workers", workers, partial(self._store.put_workers, workers))
        for model, counters in leases.counters().items():
            put = partial(self._store.put_counters, model, counters, now)
            await self._save_changed(f"counters {model}", counters, put)

    async def _save_changed(self, what: str, value: object, put: Callable[[], Awaitable[None]]) -> None:
        if self._saved.get(what) != value and self._may_write():
            await put()
            self._saved[what] = value
