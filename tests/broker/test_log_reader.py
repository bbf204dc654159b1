"""Readers of a log: live, late, slow and interrupted ones all see the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.log_pace import Pace
from headway.broker.log_reader import LogReader
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken, Tokens

KEY = JobKey("acme", "a1")
NEVER = 3600.0


@pytest.fixture
async def writer(broker_config: BrokerConfig, connection: Connection) -> AsyncIterator[LogWriter]:
    """The job's worker, on a connection of its own."""
    async with await connect(broker_config, "worker", timeout_seconds=10) as worker:
        logs = JobLogs(worker)
        yield LogWriter(logs, await logs.read(KEY), Pace())


async def begin(writer: LogWriter) -> None:
    await writer.attempt(Attempt(0, GrantToken(1, 1), "worker", "hash"))


async def write_tokens(writer: LogWriter, first: int, last: int) -> None:
    """One record per token, each stored before the next."""
    for token_id in range(first, last):
        writer.tokens([token_id], str(token_id))
        await writer.flush()


async def end(writer: LogWriter) -> None:
    await writer.end(End(FinishReason.STOP))


async def read(reader: LogReader) -> list[int]:
    """All token ids until the end."""
    records = [stored.record async for stored in reader]
    assert isinstance(records[0], Attempt)
    assert isinstance(records[-1], End)
    return [token_id for record in records if isinstance(record, Tokens) for token_id in record.token_ids]


async def opened(connection: Connection, from_start: bool = False, **options: float) -> LogReader:
    settings: dict[str, Any] = {"check_seconds": NEVER, **options}
    reader = LogReader(connection, KEY, **settings)
    await reader.open(from_start)
    await connection.client.flush()
    return reader


async def test_late_and_live_readers_see_the_same(connection: Connection, writer: LogWriter) -> None:
    live = asyncio.create_task(read(await opened(connection)))
    await begin(writer)
    await write_tokens(writer, 0, 10)
    joined = asyncio.create_task(read(await opened(connection, from_start=True)))
    await write_tokens(writer, 10, 20)
    await end(writer)
    late = await read(await opened(connection, from_start=True))
    assert await live == await joined == late == list(range(20))


async def test_a_reader_slower_than_its_buffer_loses_nothing(connection: Connection, writer: LogWriter) -> None:
    reader = await opened(connection, max_buffered=2)
    await begin(writer)
    await write_tokens(writer, 0, 50)
    await end(writer)
    assert await read(reader) == list(range(50))


async def test_a_gap_is_filled_from_the_stream(connection: Connection, writer: LogWriter) -> None:
    reader = await opened(connection)
    reading = asyncio.create_task(read(reader))
    await begin(writer)
    await write_tokens(writer, 0, 3)
    await reader.pause()
    await write_tokens(writer, 3, 6)
    await reader.open(from_start=False)
    await connection.client.flush()
    await write_tokens(writer, 6, 7)
    await end(writer)
    assert await reading == list(range(7))


async def test_a_lost_last_record_is_found_after_a_reconnect(connection: Connection, writer: LogWriter) -> None:
    reader = await opened(connection)
    reading = asyncio.create_task(read(reader))
    await reader.pause()
    await begin(writer)
    await write_tokens(writer, 0, 3)
    await end(writer)
    reader.look_again()
    assert await reading == [0, 1, 2]


async def test_a_lost_last_record_is_found_without_any_sign(connection: Connection, writer: LogWriter) -> None:
    reader = await opened(connection, check_seconds=0.02)
    await reader.pause()
    await begin(writer)
    await write_tokens(writer, 0, 3)
    await end(writer)
    assert await read(reader) == [0, 1, 2]


async def test_a_record_of_another_job_is_never_seen(connection: Connection, writer: LogWriter) -> None:
    reading = asyncio.create_task(read(await opened(connection)))
    logs = JobLogs(connection)
    other = LogWriter(logs, await logs.read(JobKey("acme", "a2")), Pace())
    await begin(other)
    await write_tokens(other, 100, 103)
    await begin(writer)
    await write_tokens(writer, 0, 2)
    await end(writer)
    assert await reading == [0, 1]


async def test_closing_ends_the_iteration(connection: Connection) -> None:
    reader = await opened(connection)
    reading = asyncio.create_task(anext(reader, None))
    await asyncio.sleep(0)
    await reader.close()
    assert await reading is None
