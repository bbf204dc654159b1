"""The processes of one measurement, and this one's own connection to NATS, by which jobs come in."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from nats.js.api import StreamState

from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.streams import JOBS, ensure_streams
from headway.core.election import ElectionKind
from headway.core.queue_config import QueuePolicy
from headway.core.status import ModelStatus, QueueStatus
from headway.settings import Settings
from loadtest.child import Child
from loadtest.errors import BenchError
from loadtest.queue_load.jobs import LoadJobs
from loadtest.queue_load.options import QueueLoad
from loadtest.queue_load.queue_child import AskQueue

MODEL = "load"
ANY_PORT = "127.0.0.1:0"
CONNECT_SECONDS = 30.0
SETTLE_SECONDS = 60.0
POLL_SECONDS = 0.005
PUBLISH_BATCH = 1000
"""Jobs after which the server is asked whether it has stored them, so that nothing is refused for haste."""


@contextmanager
def open_broker(options: QueueLoad, settings: Settings) -> Iterator[Broker]:
    """A nats-server with empty streams. Raises ``HeadwayError``."""
    with ExitStack() as parts:
        loop = parts.enter_context(asyncio.Runner())
        folder = parts.enter_context(tempfile.TemporaryDirectory(prefix="headway-bench-"))
        nats = EmbeddedNats(Path(folder))
        loop.run(nats.start())
        parts.callback(lambda: loop.run(nats.stop()))
        connection = loop.run(
            connect(replace(settings.broker, nats_url=nats.url), "load", timeout_seconds=CONNECT_SECONDS)
        )
        parts.callback(lambda: loop.run(connection.close()))
        loop.run(ensure_streams(connection.js, settings.broker))
        yield Broker(loop, nats, connection, LoadJobs(options.num_tenants, options.payload_bytes))


def load_settings(options: QueueLoad, settings: Settings) -> Settings:
    """Limits that the load fits into, nobody else's ports, and nobody else to elect."""
    most = 2 * options.num_waiting + options.num_served
    broker = replace(
        settings.broker,
        max_waiting_jobs=most,
        max_waiting_jobs_per_tenant=most,
        max_waiting_bytes=max(settings.broker.max_waiting_bytes, 2 * most * options.payload_bytes),
        max_waiting_bytes_per_tenant=max(
            settings.broker.max_waiting_bytes_per_tenant, 2 * most * options.payload_bytes
        ),
    )
    return replace(
        settings,
        broker=broker,
        lease=replace(settings.lease, lease_listen=ANY_PORT, health_listen=ANY_PORT),
        telemetry=replace(settings.telemetry, metrics_listen=ANY_PORT),
        roles=replace(settings.roles, models=(MODEL,)),
        election=replace(settings.election, election=ElectionKind.NONE),
    )


def with_policy(settings: Settings, policy: QueuePolicy) -> Settings:
    return replace(settings, queue=replace(settings.queue, policy=policy))


@dataclass
class Broker:
    """The nats-server, and the clients of the load."""

    loop: asyncio.Runner
    nats: EmbeddedNats
    connection: Connection
    jobs: LoadJobs

    def publish(self, num_jobs: int) -> None:
        """All are stored when this returns."""
        self.loop.run(self._publish(num_jobs))

    def num_jobs(self) -> int:
        """In the stream: neither acknowledged nor deleted."""
        return self.loop.run(self._state()).messages

    def wait_for_jobs(self, num_jobs: int) -> None:
        """Until so many are left in the stream. Raises `BenchError` if that takes too long."""
        self.loop.run(self._until(lambda state: state.messages <= num_jobs))

    async def _publish(self, num_jobs: int) -> None:
        client, last = self.connection.client, (await self._state()).last_seq
        for number in range(1, num_jobs + 1):
            job = self.jobs.make()
            await client.publish(f"headway.jobs.{MODEL}.{job.tenant}", job.payload)
            if number % PUBLISH_BATCH == 0:
                await self._state()
        await self._until(lambda state: state.last_seq >= last + num_jobs)

    async def _state(self) -> StreamState:
        return (await self.connection.js.stream_info(JOBS)).state

    async def _until(self, is_enough: Callable[[StreamState], bool]) -> None:
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while not is_enough(await self._state()):  # noqa: ASYNC110 (the stream has no event for it)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise BenchError(
                f"nats-server holds {(await self._state()).messages} jobs, for {SETTLE_SECONDS:g} s now"
            ) from None


def model_status(queue: Child) -> ModelStatus:
    status: QueueStatus = queue.ask(AskQueue.STATUS)
    return status.models[0]


def wait_until_indexed(queue: Child, broker: Broker) -> None:
    """Until the queue knows of all jobs of the stream and of no other. Raises `BenchError` if that takes too long."""
    give_up_at = time.monotonic() + SETTLE_SECONDS
    while (num_known := model_status(queue).num_outstanding_jobs) != (num_jobs := broker.num_jobs()):
        if time.monotonic() > give_up_at:
            raise BenchError(f"the queue knows of {num_known} jobs, the stream holds {num_jobs}")
        time.sleep(POLL_SECONDS)


def memory_bytes(pid: int) -> int:
    """Resident, of a process (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"process {pid} is gone")


Say = Callable[[str], None]
