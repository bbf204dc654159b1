"""``controller.kubernetes.io/pod-deletion-cost``: which workers a scale-down should take.

A ReplicaSet that shrinks removes the pods of the lowest cost first. Without it a busy worker goes as likely as an idle
one; it drains, so nothing is lost, but its jobs move. The cost is what a worker would have to give up, in few steps: 0
for an idle worker, one more for every doubling of its jobs. Each change costs the cluster a write of the pod, which is
why Kubernetes asks not to follow a metric with it; with steps of a factor of two a busy fleet is almost never written,
and the error is that one worker may be preferred to another with not even twice its jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headway.cluster.api import KubernetesApi
from headway.cluster.errors import ApiRefused, NotFound
from headway.core.errors import ClusterError
from headway.core.status import WorkerStatus

log = logging.getLogger(__name__)

ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
MAX_PATCHES_PER_LOOK = 20
"""A fleet whose load changes everywhere at once is written in several looks, the largest changes first."""
MAX_PAUSE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Change:
    pod: str
    cost: int
    size: int
    """How far it is from what the pod says now."""


def deletion_cost(num_held_jobs: int) -> int:
    """0 for none, else 1, 2, 2, 3, 3, 3, 3, 4, …: one more for every doubling."""
    return num_held_jobs.bit_length()


class DeletionCosts:
    """The leader's; a new leader starts from not knowing what the pods say, and writes each once."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._written: dict[str, int] = {}
        """By pod: what it says, as far as this leader wrote it."""
        self._no_pods: set[str] = set()
        """Workers that are no pods of this namespace, by incarnation."""

    async def run(self, workers: Callable[[], Iterable[WorkerStatus]], look_seconds: float) -> None:
        """Until cancelled. Errors of the API make the pauses longer, no more."""
        pause = look_seconds
        while True:
            try:
                await self.update(workers())
                pause = look_seconds
            except ClusterError as exc:
                pause = min(2 * pause, max(MAX_PAUSE_SECONDS, look_seconds))
                log.warning("pod deletion costs: %s; looking again in %g s", exc, pause)
            await asyncio.sleep(pause)

    async def update(self, workers: Iterable[WorkerStatus]) -> None:
        """Write what has changed. Raises `ClusterError` at the first pod that cannot be written for now."""
        connected = [worker for worker in workers if worker.is_connected]
        names = {worker.name for worker in connected}
        self._written = {pod: cost for pod, cost in self._written.items() if pod in names}
        self._no_pods &= {worker.incarnation for worker in connected}
        changes = [(worker, change) for worker in connected if (change := self._change(worker)) is not None]
        changes.sort(key=lambda pair: -pair[1].size)
        for worker, change in changes[:MAX_PATCHES_PER_LOOK]:
            await self._write(worker, change)

    def _change(self, worker: WorkerStatus) -> Change | None:
        if worker.incarnation in self._no_pods:
            return None
        cost, written = deletion_cost(worker.num_held_jobs), self._written.get(worker.name)
        if cost == written:
            return None
        return Change(worker.name, cost, abs(cost - (written or 0)))

    async def _write(self, worker: WorkerStatus, change: Change) -> None:
        try:
            await self._api.annotate_pod(self._namespace, change.pod, {ANNOTATION: str(change.cost)})
        except NotFound:
            log.warning("worker %s is no pod of namespace %s, so it has no deletion cost", worker.name, self._namespace)
            self._no_pods.add(worker.incarnation)
        except ApiRefused as exc:
            if exc.status != 422:
                raise
            log.warning("worker %s: %s", worker.name, exc)
            self._no_pods.add(worker.incarnation)
        else:
            self._written[change.pod] = change.cost
