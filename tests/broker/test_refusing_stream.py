"""A stream of results that refuses, or that is gone: what should be stored is held, and stored when that works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import LogIncomplete
from headway.broker.joblog import LogState
from headway.broker.log_pace import Pace
from headway.broker.log_store import Append, JobLogs, Stored
from headway.broker.log_writer import LogWriter
from headway.broker.streams import RESULTS, ensure_streams, log_subject
from headway.broker.troubles import Troubles
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken

KEY = JobKey("acme", "a1")
ATTEMPT = Attempt(1, GrantToken(1, 1), "worker", "hash")
Eventually = Callable[..., Awaitable[None]]


async def set_limit(connection: Connection, max_bytes: int) -> None:
    config = (await connection.js.stream_info(RESULTS)).config
    await connection.js.update_stream(config.evolve(max_bytes=max_bytes))


async def test_a_full_stream_is_a_trouble_until_it_takes_the_record(
    connection: Connection, eventually: Eventually
) -> None:
    troubles = Troubles()
    logs = JobLogs(connection, troubles)
    await set_limit(connection, 1)
    appending = asyncio.create_task(logs.append(Append(KEY, ATTEMPT, 0, "w1")))
    await eventually(lambda: troubles.reason == f"{RESULTS} refuses records: maximum bytes exceeded")
    await set_limit(connection, 1024 * 1024)
    assert isinstance(await appending, Stored)
    assert troubles.reason is None
    assert (await logs.read(KEY)).num_attempts == 1


async def test_who_gives_up_is_in_no_trouble_any_more(connection: Connection, eventually: Eventually) -> None:
    troubles = Troubles()
    await set_limit(connection, 1)
    appending = asyncio.create_task(JobLogs(connection, troubles).append(Append(KEY, ATTEMPT, 0, "w1")))
    await eventually(lambda: troubles.reason is not None)
    appending.cancel()
    await asyncio.wait([appending])
    assert troubles.reason is None


async def test_a_deleted_stream_is_waited_for(
    connection: Connection, broker_config: BrokerConfig, eventually: Eventually
) -> None:
    troubles = Troubles()
    logs = JobLogs(connection, troubles)
    await connection.js.delete_stream(RESULTS)
    appending = asyncio.create_task(logs.append(Append(KEY, ATTEMPT, 0, "w1")))
    await eventually(lambda: troubles.reason == f"no stream takes {log_subject(KEY)}")
    await ensure_streams(connection.js, broker_config)
    assert isinstance(await appending, Stored)
    assert troubles.reason is None


async def test_a_job_goes_on_and_ends_in_a_stream_that_was_made_anew(
    connection: Connection, broker_config: BrokerConfig
) -> None:
    writer = LogWriter(JobLogs(connection), LogState(KEY), Pace())
    await writer.attempt(ATTEMPT)
    writer.tokens([1, 2], "ab")
    await writer.flush()
    await connection.js.delete_stream(RESULTS)
    await ensure_streams(connection.js, broker_config)
    writer.tokens([3], "c")
    await writer.end(End(FinishReason.LENGTH))
    tail = await JobLogs(connection).tail(KEY)
    assert tail is not None
    assert isinstance(tail.record, End)


async def test_a_reader_of_a_stream_that_was_made_anew_is_told_that_something_is_missing(
    connection: Connection, broker_config: BrokerConfig
) -> None:
    """The numbers of the new stream begin again, so that nothing of it would ever follow on."""
    for _ in range(20):
        await connection.js.publish("headway.log.acme.other", b'{"kind":"released","reason":"x"}')
    writer = LogWriter(JobLogs(connection), LogState(KEY), Pace())
    await writer.attempt(ATTEMPT)
    async with Client.connect(config=broker_config, tenant=KEY.tenant) as client, client.follow(KEY.id) as stream:
        writer.tokens([1, 2], "ab")
        assert (await anext(stream)).text == "ab"
        await connection.js.delete_stream(RESULTS)
        await ensure_streams(connection.js, broker_config)
        writer.tokens([3], "c")
        await writer.end(End(FinishReason.LENGTH))
        for reader in client._readers:
            reader.look_again()  # it would by itself, after a while without news
        with pytest.raises(LogIncomplete):
            await stream.result(timeout_seconds=30)


async def test_a_log_that_has_lost_its_beginning_is_never_taken_for_the_whole(
    connection: Connection, broker_config: BrokerConfig
) -> None:
    writer = LogWriter(JobLogs(connection), LogState(KEY), Pace())
    await writer.attempt(ATTEMPT)
    for token_id in range(3):
        writer.tokens([token_id], "x")
        await writer.flush()
    await writer.end(End(FinishReason.LENGTH))
    await connection.js.purge_stream(RESULTS, subject=log_subject(KEY), seq=writer.state.last_sequence - 1)
    async with Client.connect(config=broker_config, tenant=KEY.tenant) as client:
        with pytest.raises(LogIncomplete):
            await client.result(KEY.id, timeout_seconds=30)


async def test_jetstream_without_space_is_waited_for(own_nats: EmbeddedNats, eventually: Eventually) -> None:
    """The account's limit, as an operator of a shared server sets one."""
    config = BrokerConfig(
        nats_url=own_nats.url, nats_user="headway", nats_password="x", max_result_bytes=1024 * 1024,
        max_waiting_bytes=2 * 1024 * 1024, max_dead_bytes=1024 * 1024, nats_timeout_seconds=2.0,
    )  # fmt: skip
    await _limit_account(own_nats, "64MB")
    troubles = Troubles()
    async with await connect(config, "tests", timeout_seconds=20) as connection:
        await ensure_streams(connection.js, config)
        await connection.js.publish("headway.log.acme.other", b"x" * 100_000)
        await _limit_account(own_nats, "4096")
        appending = asyncio.create_task(JobLogs(connection, troubles).append(Append(KEY, ATTEMPT, 0, "w1")))
        await eventually(lambda: troubles.reason is not None and "resource" in troubles.reason)
        await _limit_account(own_nats, "64MB")
        assert isinstance(await appending, Stored)
        assert troubles.reason is None


async def _limit_account(server: EmbeddedNats, max_store: str) -> None:
    server.extra_config = f"""
        accounts {{ HEADWAY {{
            users: [{{user: headway, password: x}}], jetstream: {{max_file: {max_store}, max_mem: 64MB}}
        }} }}
    """
    await server.reload()
