"""Leases for the suite that every kind of leader's lock passes (tests/roles/test_election.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from kubernetes.aio import client

from headway.cluster.api import KubernetesApi
from headway.cluster.lease_lock import LeaseLock
from tests.cluster.kubernetes import KubernetesServer


@asynccontextmanager
async def kubernetes_locks(_: object) -> AsyncIterator[Callable[[], Awaitable[LeaseLock]]]:
    """Another process's way to the same Lease, each with a client of its own."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(KubernetesServer())

        async def open_lock() -> LeaseLock:
            api = KubernetesApi(client.Configuration(host=server.url), timeout_seconds=5.0)
            stack.push_async_callback(api.close)
            return LeaseLock(api, "inference", "headway-queue")

        yield open_lock
