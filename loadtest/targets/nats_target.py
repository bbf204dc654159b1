"""The whole path: a client's jobs over NATS to the queue, by lease to the worker, and tokens back over NATS.

Every part is a process of its own, as in a cluster: nats-server, the queue, the worker and its engine. The client of
all requests is this process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headway import Client
from headway.broker.embedded import EmbeddedNats
from headway.core.election import ElectionKind
from headway.settings import Settings
from loadtest.child import Child
from loadtest.machine import CpuClock
from loadtest.recording import Recording, Timeline
from loadtest.targets.role_child import Ask, StartQueue, StartWorker, open_role
from loadtest.workloads.requests import Request

TENANT = "loadtest"
ANY_PORT = "127.0.0.1:0"
CHECK_SECONDS = 0.5
"""Between two looks at whether all processes still live."""


@contextmanager
def open_path(settings: Settings, say: Callable[[str], None]) -> Iterator[WholePath]:
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
        yield WholePath(loop, nats, settings.engine.served_model, queue, worker, engine_pid)


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
    """All that was started, and the event loop in which the client runs."""

    loop: asyncio.Runner
    nats: EmbeddedNats
    model: str
    queue: Child
    worker: Child
    engine_pid: int

    @property
    def process_ids(self) -> dict[str, int | None]:
        return {
            "client": os.getpid(),
            "nats-server": self.nats.pid,
            "queue": self.queue.pid,
            "worker": self.worker.pid,
            "engine": self.engine_pid,
        }

    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        """Nobody else may use it meanwhile."""
        timelines = [Timeline(due, request.num_output_tokens) for request, due in zip(requests, due_at, strict=True)]
        self.worker.ask(Ask.BEGIN)
        cpu = CpuClock(self.process_ids)
        self.loop.run(self._send_all(requests, timelines))
        cpu_seconds = cpu.elapsed()
        return Recording(timelines, self.worker.ask(Ask.STEPS), cpu_seconds)

    async def _send_all(self, requests: Sequence[Request], timelines: Sequence[Timeline]) -> None:
        started = time.monotonic()
        async with Client.connect(self.nats.url, tenant=TENANT, model=self.model) as client:
            watching = asyncio.create_task(self._watch(), name="bench:watch")
            sending = asyncio.create_task(_send_each(client, requests, timelines, started), name="bench:send")
            try:
                await asyncio.wait((watching, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _stop(watching, sending)

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


async def _send_each(
    client: Client, requests: Sequence[Request], timelines: Sequence[Timeline], started: float
) -> None:
    """Until the last is answered or the first fails."""
    try:
        async with asyncio.TaskGroup() as group:
            for request, timeline in zip(requests, timelines, strict=True):
                group.create_task(_send(client, request, timeline, started))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _send(client: Client, request: Request, timeline: Timeline, started: float) -> None:
    await asyncio.sleep(started + timeline.due_at - time.monotonic())
    sampling = request.sampling
    stream = client.submit(
        request.prompt_token_ids,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        ignore_eos=sampling.ignore_eos,
    )
    async for chunk in stream:
        now = time.monotonic() - started
        timeline.receive(len(chunk.token_ids), now)
        if chunk.finish_reason is not None:
            timeline.end(chunk.finish_reason, now)
