"""What a queue process does in a Kubernetes cluster, beside its own work: it tells autoscalers how much waits, and the
cluster which worker to remove first.

All replicas serve; one that does not lead asks the one that does, over NATS. What a leader knows without NATS is not
told: it would be what it knew before. The packages of the extra ``cluster`` are loaded only if something here is on.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from headway.broker.connection import Connection
from headway.broker.control import request_status
from headway.cluster.config import ClusterConfig
from headway.core.errors import SettingError
from headway.core.status import QueueStatus, WorkerStatus
from headway.lease.config import LeaseConfig, split_address
from headway.roles.supervisor import Supervisor

if TYPE_CHECKING:
    from headway.cluster.api import KubernetesApi
    from headway.cluster.figures import Figures
    from headway.cluster.lease_lock import LeaseLock

log = logging.getLogger(__name__)

ASK_SECONDS = 2.0
"""For the leader's answer; an autoscaler asks again in 15 or 30 seconds."""

OwnStatus = Callable[[], QueueStatus | None]
"""None while this process does not lead."""


class ClusterServices:
    """Of one queue process, from `start` to `stop`, whether it leads or not."""

    def __init__(self, config: ClusterConfig, supervisor: Supervisor) -> None:
        self._config = config
        self._supervisor = supervisor
        self._parts = AsyncExitStack()
        self._api: KubernetesApi | None = None

    async def lease_lock(self) -> LeaseLock:
        """The lock for an election by Kubernetes. Raises `SettingError` outside a cluster."""
        api = await self._connect()
        from headway.cluster.lease_lock import LeaseLock

        return LeaseLock(api, self._config.namespace, self._config.election_lease_name)

    async def start(self, connection: Connection, own_status: OwnStatus) -> None:
        """Raises `SettingError` for what cannot be served; what the cluster cannot do now is tried again for ever."""
        if self._config.deletion_costs:
            await self._keep_deletion_costs(own_status)
        if self._config.external_metrics_listen is None and self._config.keda_listen is None:
            return
        figures = _figures(self._config, connection, own_status)
        if self._config.external_metrics_listen is not None:
            await self._serve_metrics(figures)
        if self._config.keda_listen is not None:
            await self._serve_keda(figures)

    async def stop(self) -> None:
        """The tasks are the supervisor's."""
        await self._parts.aclose()

    async def _keep_deletion_costs(self, own_status: OwnStatus) -> None:
        api = await self._connect()
        from headway.cluster.deletion_cost import DeletionCosts

        def workers() -> tuple[WorkerStatus, ...]:
            status = own_status()
            return () if status is None else status.workers

        costs = DeletionCosts(api, self._config.namespace)
        self._supervisor.spawn("deletion costs", costs.run(workers, self._config.deletion_cost_seconds))

    async def _serve_metrics(self, figures: Figures) -> None:
        api = await self._connect()
        from headway.cluster.metrics_server import MetricsServer

        self._supervisor.spawn("external metrics", MetricsServer(self._config, api, figures).run())

    async def _serve_keda(self, figures: Figures) -> None:
        from headway.cluster.scaler_server import ScalerServer

        server = ScalerServer(self._config, figures)
        await server.start()
        self._parts.push_async_callback(server.stop)
        log.info("KEDA's external scaler at port %s", server.port)

    async def _connect(self) -> KubernetesApi:
        if self._api is None:
            try:
                from headway.cluster.api import KubernetesApi
            except ImportError as exc:
                raise SettingError("cluster", "on", f"needs `pip install 'headway[cluster]'` ({exc})") from exc
            self._api = await KubernetesApi.connect(self._config.kubernetes_timeout_seconds)
            self._parts.push_async_callback(self._api.close)
        return self._api


def with_pod_address(config: LeaseConfig, pod_ip: str | None) -> LeaseConfig:
    """Workers reach this replica at its pod's address, at the port that it listens on; unless a setting says it all."""
    if pod_ip is None or config.lease_advertised_address is not None:
        return config
    _, port = split_address(config.lease_listen)
    host = f"[{pod_ip}]" if ":" in pod_ip else pod_ip
    return dataclasses.replace(config, lease_advertised_address=f"{host}:{port}")


def _figures(config: ClusterConfig, connection: Connection, own_status: OwnStatus) -> Figures:
    from headway.cluster.figures import Figures

    async def ask_status() -> QueueStatus:
        status = own_status() if connection.state.connected else None
        return status if status is not None else await request_status(connection, ASK_SECONDS)

    return Figures(ask_status, config.jobs_per_worker)
