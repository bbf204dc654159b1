"""Fixtures that several packages need: a real nats-server, once per session, on a free port, a bad line to it, and
engine children that start at once."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.streams import ensure_streams
from loadtest.faults.proxy import Proxy, serving
from loadtest.faults.template import Template, engine_template
from tests.nats_cluster import NatsCluster

# A loaded machine must not fail a property: how long an example takes is not what these tests are about.
settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")

Condition = Callable[[], bool | Awaitable[bool]]


def pytest_configure() -> None:
    """Whoever starts the tests may ignore signals, as `nohup` and a shell's background jobs do. Children inherit that,
    and then none of them would end when a test asks it to."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


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
async def fresh_nats(nats_server: EmbeddedNats, eventually: Callable[..., Awaitable[None]]) -> EmbeddedNats:
    """The session's server without any stream: as good as new, in milliseconds.

    It removes the files of a deleted stream after it has answered, and meanwhile may fail to make one of that name.
    """
    async with await connect(BrokerConfig(nats_url=nats_server.url), "tests", timeout_seconds=10) as connection:
        for stream in await connection.js.streams_info():
            await connection.js.delete_stream(stream.config.name or "")
    streams = nats_server.folder / "jetstream" / "jetstream" / "$G" / "streams"
    await eventually(lambda: not streams.exists() or not any(streams.iterdir()))
    return nats_server


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A server of the test's own, which it may stop and start again."""
    async with EmbeddedNats(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def nats_cluster(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    """Three servers of the test's own, as one cluster (`num_stream_replicas` = 3)."""
    async with NatsCluster(tmp_path / "cluster") as cluster:
        yield cluster


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


OpenProxy = Callable[[str], AbstractAsyncContextManager[Proxy]]


@pytest.fixture(scope="session")
def open_proxy() -> OpenProxy:
    """``async with open_proxy(server_url) as proxy``; clients take ``proxy.url``."""
    return lambda server_url: serving(Proxy(server_url))


# -- engine children -------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Template]:
    """Has loaded torch, which takes seconds, for all engine children that are started through it."""
    async with engine_template(tmp_path_factory.mktemp("template")) as template:
        yield template
