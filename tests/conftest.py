"""Fixtures that several packages need: a real nats-server, once per session, on a free port, and a bad line to it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.streams import ensure_streams

# A loaded machine must not fail a property: how long an example takes is not what these tests are about.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")


Condition = Callable[[], bool | Awaitable[bool]]


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Awaitable[None]]:
    """``await eventually(condition, seconds=20)`` polls a plain or async condition; fails with a TimeoutError."""

    async def poll(condition: Condition, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not await _value(condition):  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.01)

    return poll


async def _value(condition: Condition) -> bool:
    value = condition()
    return await value if inspect.isawaitable(value) else value


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedNats]:
    """One server for the whole session. Its streams are whatever the last test left: see `fresh_nats`."""
    server = EmbeddedNats(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def fresh_nats(nats_server: EmbeddedNats) -> EmbeddedNats:
    """The session's server without any stream: as good as new, in milliseconds."""
    async with await connect(BrokerConfig(nats_url=nats_server.url), "tests", timeout_seconds=10) as connection:
        for stream in await connection.js.streams_info():
            await connection.js.delete_stream(stream.config.name or "")
    return nats_server


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A server of the test's own, which it may stop and start again."""
    async with EmbeddedNats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def broker_config(fresh_nats: EmbeddedNats) -> BrokerConfig:
    return BrokerConfig(nats_url=fresh_nats.url, nats_timeout_seconds=2.0, chunk_interval_seconds=0.0)


@pytest.fixture
async def connection(broker_config: BrokerConfig) -> AsyncIterator[Connection]:
    """A connection to a fresh server with Headway's streams."""
    async with await connect(broker_config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, broker_config)
        yield connection


# -- a bad line ------------------------------------------------------------------------------------------------------


class Proxy:
    """A TCP proxy in front of one server, that can break connections, slow them down, or let nothing through."""

    def __init__(self, server_url: str) -> None:
        target = urlsplit(server_url)
        self._host, self._port = target.hostname, target.port
        self.url = ""
        self.delay_seconds = 0.0
        """Of every piece of data, in both directions."""
        self.num_cuts = 0
        self._bytes_left: int | None = None
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Break all connections, with what is on its way; new ones are let in."""
        self.num_cuts += 1
        self._bytes_left = None
        for writer in tuple(self._writers):
            writer.transport.abort()

    def cut_after(self, num_bytes: int) -> None:
        """`cut` once, in the middle of what the server sends: at most so many bytes from now on still pass."""
        self._bytes_left = num_bytes

    def hold(self) -> None:
        """A black hole: connections stay and can be made, but nothing comes through until `release` or `cut`."""
        self._passing.clear()

    def release(self) -> None:
        self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
            writers = {writer, server_writer}
            self._writers |= writers
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, server_writer, False))
                    group.create_task(self._pass(server_reader, writer, True))
            except* OSError:
                pass
            finally:
                self._writers -= writers
                server_writer.transport.abort()
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_server: bool) -> None:
        """Until one side ends, which ends the other."""
        while data := await reader.read(65536):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            await self._passing.wait()
            if from_server and self._bytes_left is not None:
                data, self._bytes_left = data[: self._bytes_left], self._bytes_left - len(data)
            writer.write(data)
            await writer.drain()
            if self._bytes_left is not None and self._bytes_left <= 0:
                self.cut()
        raise ConnectionResetError


OpenProxy = Callable[[str], AbstractAsyncContextManager[Proxy]]


@pytest.fixture(scope="session")
def open_proxy() -> OpenProxy:
    """``async with open_proxy(server_url) as proxy``; clients take ``proxy.url``."""

    @asynccontextmanager
    async def open_(server_url: str) -> AsyncIterator[Proxy]:
        proxy = Proxy(server_url)
        serving: set[asyncio.Task[None]] = set()

        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(task := asyncio.create_task(proxy.serve(reader, writer), name="proxy"))
            task.add_done_callback(serving.discard)

        async with AsyncExitStack() as stack:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            stack.callback(server.close)
            proxy.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield proxy
            proxy.cut()
            for task in tuple(serving):
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    return open_
