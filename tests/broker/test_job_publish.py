"""Publishing a job exactly once, against a real server."""

from __future__ import annotations

import asyncio

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.job_publish import publication, publish_job
from headway.broker.streams import JOBS, ensure_streams

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def num_jobs(connection: Connection) -> int:
    return (await connection.js.stream_info(JOBS)).state.messages


async def test_a_repeated_publish_stores_the_job_once(connection: Connection) -> None:
    job = publication("default", "acme", b"{}")
    first = await publish_job(connection, job, 5.0)
    assert await publish_job(connection, job, 5.0) == first
    assert await num_jobs(connection) == 1


async def test_the_same_job_of_two_tenants_is_two_jobs(connection: Connection) -> None:
    for tenant in ("acme", "other"):
        await publish_job(connection, publication("default", tenant, b'{"id": "a1"}'), 5.0)
    assert await num_jobs(connection) == 2


async def test_a_job_published_while_the_server_is_away_is_stored_once(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=0.5, nats_reconnect_seconds=0.05)
    lost = asyncio.Event()
    async with await connect(
        config, "client", timeout_seconds=10, on_change=lambda state: state.connected or lost.set()
    ) as connection:
        await ensure_streams(connection.js, config)
        await own_nats.stop()
        publishing = asyncio.create_task(publish_job(connection, publication("default", "acme", b"{}"), 20.0))
        await lost.wait()
        await own_nats.start()
        assert await publishing == 1
        assert await num_jobs(connection) == 1


def test_the_size_of_a_job_counts_its_headers() -> None:
    plain = publication("default", "acme", b"12345")
    traced = publication("default", "acme", b"12345", traceparent=TRACEPARENT)
    assert traced.size == plain.size + len(f"traceparent: {TRACEPARENT}\r\n")


@pytest.mark.parametrize(
    "broken", ["", "00-trace", f"{TRACEPARENT}\r\nNats-Rollup: all", f"01{TRACEPARENT[2:]}-é\r\nA: b"]
)
def test_a_traceparent_that_is_none_adds_no_header_of_its_own(broken: str) -> None:
    headers = publication("default", "acme", b"12345", traceparent=broken).headers
    assert headers.keys() <= {"Nats-Msg-Id", "traceparent"}
    assert all(value.isascii() and value.isprintable() for value in headers.values())
