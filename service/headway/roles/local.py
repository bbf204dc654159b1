"""Everything on this machine: a real nats-server, the queue and a worker. No cluster, no account.

The same roles over the same wire as in a cluster; they only share one process (and so one event loop) here, beside the
NATS server and the engine, which are children of their own.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from opentelemetry.sdk.trace.export import SpanExporter

from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import EmbeddedNatsFailed
from headway.core.election import ElectionKind
from headway.roles.queue import QueueRole
from headway.roles.worker import WorkerRole
from headway.settings import Settings

ANY_PORT = "127.0.0.1:0"


class LocalRole:
    """An async context manager; entered, it serves.

    ``on_stage`` hears what the start and the end are busy with, for people.
    """

    def __init__(
        self,
        settings: Settings,
        nats_folder: Path,
        nats_port: int = 0,
        on_stage: Callable[[str], None] = lambda stage: None,
        span_exporter: SpanExporter | None = None,
    ) -> None:
        self._settings = settings
        self._on_stage = on_stage
        self._span_exporter = span_exporter
        self._parts = AsyncExitStack()
        self.nats = EmbeddedNats(nats_folder, nats_port)
        self.queue: QueueRole
        self.worker: WorkerRole

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._parts.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """The worker drains first, then the queue, then NATS."""
        await self._parts.aclose()

    def hurry(self) -> None:
        """End sooner: the worker hands its jobs back at once."""
        self.worker.hurry()

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``, or until a part fails."""
        parts = [
            asyncio.create_task(part) for part in (self.queue.run(stop), self.worker.run(stop), self._watch_nats())
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _watch_nats(self) -> None:
        """NATS is gone for good: nobody would hear of jobs that are finished, so nothing is waited for."""
        failure = EmbeddedNatsFailed(f"ended with status {await self.nats.wait()}")
        self._on_stage(f"{failure}; stopping at once, jobs that run are done again after the next start")
        self.worker.abandon_jobs()
        raise failure

    async def _start(self) -> None:
        self._on_stage("starting nats-server")
        await self._parts.enter_async_context(self.nats)
        broker = dataclasses.replace(self._settings.broker, nats_url=self.nats.url)
        settings = dataclasses.replace(self._settings, broker=broker)
        self._on_stage("starting the queue")
        self.queue = QueueRole(self._for_queue(settings), self._span_exporter)
        self._parts.push_async_callback(self.queue.close)
        await self.queue.start()
        self._on_stage("starting the engine")
        self.worker = WorkerRole(self._for_worker(settings, self.queue.server.address), self._span_exporter)
        self.worker.on_stage = self._on_stage
        self.worker.must_start = True
        self._parts.push_async_callback(self.worker.close)
        await self.worker.start()

    @staticmethod
    def _for_queue(settings: Settings) -> Settings:
        """The NATS server is its own, so nobody else leads; it need not wait for the lock of one that was killed."""
        models = (*settings.roles.models, settings.engine.served_model)
        roles = dataclasses.replace(settings.roles, models=tuple(dict.fromkeys(models)))
        election = dataclasses.replace(settings.election, election=ElectionKind.NONE)
        return dataclasses.replace(settings, roles=roles, election=election)

    @staticmethod
    def _for_worker(settings: Settings, lease_address: str) -> Settings:
        """Fixed ports are the queue's; the worker, in the same process, takes free ones."""
        lease = dataclasses.replace(settings.lease, lease_address=lease_address, health_listen=ANY_PORT)
        telemetry = dataclasses.replace(settings.telemetry, metrics_listen=ANY_PORT)
        return dataclasses.replace(settings, lease=lease, telemetry=telemetry)
