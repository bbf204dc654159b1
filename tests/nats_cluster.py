"""Three real nats-servers as one cluster, whose nodes a test can kill, pause and start again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self, TypeVar

from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import BrokerError, BrokerUnavailable, translated
from loadtest.faults.ports import free_port

NUM_NODES = 3
READY_SECONDS = 60.0
POLL_SECONDS = 0.05
PROBE = "PROBE"

T = TypeVar("T")
Ask = Callable[[JetStreamContext], Awaitable[T]]


class NatsCluster:
    """Nodes ``n1`` … ``n3``; clients take `url`, which names them all.

    Once entered it can hold streams with three replicas. After the loss of a node it takes the servers some seconds
    (4 to 9 with this version) to elect new leaders for the streams that the node led.
    """

    def __init__(self, folder: Path) -> None:
        ports = _free_ports(NUM_NODES)
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in ports)
        names = [f"n{number}" for number in range(1, NUM_NODES + 1)]
        self.nodes = {
            name: EmbeddedNats(folder / name, extra_config=_config(name, port, routes))
            for name, port in zip(names, ports, strict=True)
        }
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes.values())

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for node in self.nodes.values():
                await stack.enter_async_context(node)
            await self._until(_holds_three_replicas)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in self.nodes:
            self.resume(name)
        await self._stack.aclose()

    async def leader_of(self, stream: str) -> str:
        """The node that leads the stream now; waits while there is none."""

        async def ask(js: JetStreamContext) -> str:
            cluster = (await js.stream_info(stream)).cluster
            return _known(cluster.leader if cluster else None)

        return await self._until(ask)

    async def kill(self, name: str) -> None:
        await self.nodes[name].stop(kill=True)

    async def start(self, name: str) -> None:
        """Again, after `kill`: on the same port, with the same streams."""
        await self.nodes[name].start()

    def pause(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    async def is_whole(self, stream: str) -> None:
        """Waits until every replica of the stream is there and has all of it."""

        async def ask(js: JetStreamContext) -> bool:
            cluster = (await js.stream_info(stream)).cluster
            replicas = (cluster.replicas if cluster else None) or []
            whole = len(replicas) == NUM_NODES - 1 and all(peer.current and not peer.offline for peer in replicas)
            return _known(whole or None)

        await self._until(ask)

    def _signal(self, name: str, number: signal.Signals) -> None:
        if (pid := self.nodes[name].pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def _until(self, ask: Ask[T]) -> T:
        """What ``ask`` returns once it does not fail."""
        config = BrokerConfig(nats_url=self.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.1)
        async with asyncio.timeout(READY_SECONDS), await connect(config, "cluster-tests") as connection:
            while True:
                with suppress(BrokerError), translated("ask the cluster"):
                    return await ask(connection.js)
                await asyncio.sleep(POLL_SECONDS)


async def _holds_three_replicas(js: JetStreamContext) -> None:
    await js.add_stream(StreamConfig(name=PROBE, subjects=["probe"], num_replicas=NUM_NODES))
    await js.delete_stream(PROBE)


def _known(value: T | None) -> T:
    if value is None:
        raise BrokerUnavailable("ask the cluster", "not yet")
    return value


def _config(name: str, port: int, routes: str) -> str:
    return f"server_name: {name}\ncluster {{ name: headway, listen: 127.0.0.1:{port}, routes: [{routes}] }}"


def _free_ports(count: int) -> list[int]:
    """The routes name each other's ports, so they must be known before any server runs."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
