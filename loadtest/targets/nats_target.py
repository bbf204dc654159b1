"""The whole path: a client's jobs over NATS to the queue, by lease to the worker, and tokens back over NATS.

Every part is a process of its own, as in a cluster: nats-server, the queue, the worker and its engine. The client of
all requests is this process, with one connection for each tenant.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

from headway import Client
from headway.broker.embedded import EmbeddedNats
from headway.core.election import ElectionKind
from headway.settings import Settings
from loadtest.child import Child
from loadtest.machine import CpuClock
from loadtest.progress import Watch, nobody
from loadtest.recording import Recording
from loadtest.targets.nats_senders import Senders
from loadtest.targets.role_child import Ask, StartQueue, StartWorker, open_role
from loadtest.targets.sending import DEFAULT_TIMEOUT_SECONDS
from loadtest.workloads.plan import Plan
from loadtest.workloads.requests import Request

ANY_PORT = "127.0.0.1:0"
CHECK_SECONDS = 0.5
"""Between two looks at whether all processes still live."""


@contextmanager
def open_path(
    settings: Settings,
    say: Callable[[str], None],
    watch: Watch = nobody,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Iterator[WholePath]:
    """Serves when this returns. Raises ``HeadwayError``."""
    with ExitStack() as parts:
        loop = parts.enter_context(asyncio.Runner())
        folder = parts.enter_context(tempfile.TemporaryDirectory(prefix="headway-bench-"))
        nats = EmbeddedNats(Path(folder))
        say("starting nats-server")
        loop.run(nats.start())
        parts.callback(lambda: loop.run(nats.stop()))
        settings = _beside_others(settings, nats.url)
        say("starting the queue")
        queue, lease_address = parts.enter_context(open_role(StartQueue(settings), say))
        say("starting the engine")
        lease = dataclasses.replace(settings.lease, lease_address=lease_address)
        start = StartWorker(dataclasses.replace(settings, lease=lease))
        worker, engine_pid = parts.enter_context(open_role(start, say))
        model = settings.engine.served_model
        yield WholePath(loop, nats, model, queue, worker, engine_pid, watch, timeout_seconds)


def _beside_others(settings: Settings, nats_url: str) -> Settings:
    """Nobody else's ports, and nobody else to elect."""
    return dataclasses.replace(
        settings,
        broker=dataclasses.replace(settings.broker, nats_url=nats_url),
        lease=dataclasses.replace(settings.lease, lease_listen=ANY_PORT, health_listen=ANY_PORT),
        telemetry=dataclasses.replace(settings.telemetry, metrics_listen=ANY_PORT),
        roles=dataclasses.replace(settings.roles, models=(settings.engine.served_model,)),
        election=dataclasses.replace(settings.election, election=ElectionKind.NONE),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class WholePath:
    """All that was started, and the event loop in which the clients run."""

    loop: asyncio.Runner
    nats: EmbeddedNats
    model: str
    queue: Child
    worker: Child
    engine_pid: int
    watch: Watch = nobody
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """From when a request was due until it counts as lost."""

    @property
    def process_ids(self) -> dict[str, int | None]:
        return {
            "client": os.getpid(),
            "nats-server": self.nats.pid,
            "queue": self.queue.pid,
            "worker": self.worker.pid,
            "engine": self.engine_pid,
        }

    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        """Nobody else may use it meanwhile."""
        self.worker.ask(Ask.BEGIN)
        cpu = CpuClock(self.process_ids)
        senders = self.loop.run(self._send_all(requests, plan))
        cpu_seconds = cpu.elapsed()
        steps = self.worker.ask(Ask.STEPS).counted_from(senders.started)
        return Recording(senders.timelines, steps, cpu_seconds, senders.errors)

    async def _send_all(self, requests: Sequence[Request], plan: Plan) -> Senders:
        async with AsyncExitStack() as clients:
            senders = Senders(requests, self.timeout_seconds)
            for tenant in {request.tenant for request in requests}:
                client = Client.connect(self.nats.url, tenant=tenant, model=self.model)
                senders.clients[tenant] = await clients.enter_async_context(client)
            senders.start()
            watching = asyncio.create_task(self._watch(), name="bench:watch")
            sending = asyncio.create_task(senders.send(plan, self.watch), name="bench:send")
            try:
                await asyncio.wait((watching, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _stop(watching, sending)
            return senders

    async def _watch(self) -> None:
        """Raises if a process ends, whose answers would be waited for for ever."""
        while True:
            for child in (self.queue, self.worker):
                child.check()
            await asyncio.sleep(CHECK_SECONDS)


async def _stop(*tasks: asyncio.Task[None]) -> None:
    """Raises what the first of them that failed has raised."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
