"""What NATS has sent and nobody got comes again; what is held here comes once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import nats.errors
import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.errors import BrokerUnavailable, Deposed
from headway.broker.intake import JobsIntake
from headway.broker.streams import JOBS, jobs_subject

TIMEOUT_SECONDS = 20.0
FETCH_SECONDS = 10.0
PAYLOAD = b'{"prompt":"' + b"Hello" * 20 + b'"}'
Eventually = Callable[..., Awaitable[None]]


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.broker.pull.SETTLE_SECONDS", 0.2)
    monkeypatch.setattr("headway.broker.pull.HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr("headway.broker.pull.PULL_SECONDS", 0.5)


@pytest.fixture
async def proxy(connection: Connection, open_proxy: Any) -> AsyncIterator[Any]:
    async with open_proxy(connection.config.nats_url) as proxy:
        yield proxy


@pytest.fixture
async def bad_line(proxy: Any) -> AsyncIterator[Connection]:
    config = BrokerConfig(nats_url=proxy.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.05)
    async with await connect(config, "bad line", timeout_seconds=10) as connection:
        yield connection


async def leader(connection: Connection, epoch: int = 1) -> JobsIntake:
    intake = JobsIntake(connection)
    await intake.takeover(epoch)
    return intake


async def publish(connection: Connection, count: int) -> list[int]:
    subject = jobs_subject("default", "acme")
    acks = await asyncio.gather(*(connection.js.publish(subject, PAYLOAD, timeout=20) for _ in range(count)))
    return sorted(ack.seq for ack in acks)


async def lose(connection: Connection, eventually: Eventually, count: int, num_more: int = 0) -> list[int]:
    """New jobs of which the leader's consumer delivers ``count`` to somebody else: to the leader they are lost on the
    way. Returns the stream sequences of all."""

    async def is_nobody_pulling() -> bool:
        return (await connection.js.consumer_info(JOBS, "queue-1")).num_waiting == 0

    await eventually(is_nobody_pulling)  # The leader's open pull would get them.
    sequences = await publish(connection, count + num_more)
    inbox = connection.client.new_inbox()
    stolen = await connection.client.subscribe(inbox)
    await connection.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{JOBS}.queue-1", str(count).encode(), reply=inbox)
    for _ in range(count):
        await stolen.next_msg(FETCH_SECONDS)
    await stolen.unsubscribe()
    return sequences


async def fetch_until(intake: JobsIntake, last: int) -> list[int]:
    """The stream sequences of all jobs that come, until all up to ``last`` were there. As the queue does, it tries
    again while NATS is away."""
    fetched: list[int] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (intake.reached >= last and last in fetched):
            with suppress(BrokerUnavailable):
                fetched += [job.stream_sequence for job in await intake.fetch(100, 0.2)]
    return fetched


async def num_stored(connection: Connection) -> int:
    return (await connection.js.stream_info(JOBS)).state.messages


async def ack_all(intake: JobsIntake, sequences: list[int]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await intake.ack_together(sequences)


@pytest.mark.parametrize("num_bytes", [100, 5_000, 60_000])
async def test_jobs_in_flight_on_a_connection_that_breaks_come_each_once(
    connection: Connection, bad_line: Connection, proxy: Any, num_bytes: int, eventually: Eventually
) -> None:
    intake = await leader(bad_line)
    fetching = asyncio.create_task(intake.fetch(100, FETCH_SECONDS))

    async def is_pulling() -> bool:
        return (await connection.js.consumer_info(JOBS, "queue-1")).num_waiting == 1

    await eventually(is_pulling)
    proxy.cut_after(num_bytes)
    sequences = await publish(connection, 600)
    fetched = [job.stream_sequence for job in await fetching] + await fetch_until(intake, sequences[-1])
    assert proxy.num_cuts == 1
    assert fetched == sequences
    assert intake.num_unread == 0
    await ack_all(intake, sequences)
    assert await num_stored(connection) == 0


async def test_a_gap_in_the_deliveries_is_noticed_at_the_next_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("headway.broker.pull.PULL_SECONDS", 3600.0)
    intake = await leader(connection)
    sequences = await lose(connection, eventually, 4, num_more=6)
    assert await fetch_until(intake, sequences[-1]) == sequences


async def test_what_comes_behind_a_gap_stays_out(connection: Connection, eventually: Eventually) -> None:
    """So jobs are taken in in stream order, and nobody believes too early that all were read."""
    intake = await leader(connection)
    await lose(connection, eventually, 4, num_more=6)
    assert await intake.fetch(100, FETCH_SECONDS) == []
    assert (intake.num_unread, intake.reached) == (10, 0)


async def test_the_last_jobs_of_the_stream_are_missed_too(connection: Connection, eventually: Eventually) -> None:
    intake = await leader(connection)
    sequences = await lose(connection, eventually, 3)
    assert await fetch_until(intake, sequences[-1]) == sequences


async def test_an_idle_leader_with_nothing_lost_keeps_its_consumer(connection: Connection) -> None:
    intake = await leader(connection)
    sequences = await publish(connection, 3)
    await fetch_until(intake, sequences[-1])
    created = (await connection.js.consumer_info(JOBS, "queue-1")).created
    await intake.fetch(100, 1.5)
    assert (await connection.js.consumer_info(JOBS, "queue-1")).created == created


async def test_a_slow_line_is_not_taken_for_a_broken_one(
    connection: Connection, bad_line: Connection, proxy: Any
) -> None:
    intake = await leader(bad_line)
    created = (await connection.js.consumer_info(JOBS, "queue-1")).created
    proxy.delay_seconds = 0.1
    sequences = await publish(connection, 300)
    assert await fetch_until(intake, sequences[-1]) == sequences
    assert (await connection.js.consumer_info(JOBS, "queue-1")).created == created


async def test_a_line_that_lets_nothing_through_for_a_while_loses_nothing(
    connection: Connection, bad_line: Connection, proxy: Any
) -> None:
    intake = await leader(bad_line)
    before = await publish(connection, 100)
    fetched = await fetch_until(intake, before[-1])
    proxy.hold()
    after = await publish(connection, 100)
    fetching = asyncio.create_task(fetch_until(intake, after[-1]))
    await asyncio.wait([fetching], timeout=1.0)
    proxy.cut()
    proxy.release()
    assert fetched + await fetching == before + after


async def test_jobs_that_are_held_are_acknowledged_where_they_were_delivered_last(
    connection: Connection, eventually: Eventually
) -> None:
    intake = await leader(connection)
    held = await publish(connection, 5)
    await fetch_until(intake, held[-1])
    lost = await lose(connection, eventually, 1)
    acking = asyncio.create_task(ack_all(intake, held))
    await fetch_until(intake, lost[-1])
    await acking
    assert await num_stored(connection) == 1
    await ack_all(intake, lost)
    assert await num_stored(connection) == 0


async def test_a_job_whose_acknowledgement_went_unheard_is_settled_once_it_does_not_come_again(
    connection: Connection, bad_line: Connection, proxy: Any, eventually: Eventually
) -> None:
    intake = await leader(bad_line)
    held = await publish(connection, 3)
    await fetch_until(intake, held[-1])
    await lose(connection, eventually, 1)
    await bad_line.client.flush()
    proxy.cut_after(0)
    acking = asyncio.create_task(ack_all(intake, held))

    async def is_taken_out() -> bool:
        return await num_stored(connection) < 4

    await eventually(is_taken_out)
    assert await fetch_until(intake, held[-1] + 1) == [held[-1] + 1]
    await acking
    assert await num_stored(connection) == 1


async def test_acknowledging_goes_on_while_the_consumer_is_made_anew_again_and_again(connection: Connection) -> None:
    intake = await leader(connection)
    held = await publish(connection, 300)
    await fetch_until(intake, held[-1])
    acking = asyncio.create_task(ack_all(intake, held))
    for _ in range(5):
        await intake._begin_again()
        while intake.num_unread:
            assert await intake.fetch(20, FETCH_SECONDS) == []
    await acking
    assert await num_stored(connection) == 0


async def test_a_leader_that_makes_its_consumer_anew_gives_way_to_a_newer_one(
    connection: Connection, eventually: Eventually
) -> None:
    old = await leader(connection)
    await lose(connection, eventually, 1, num_more=2)
    await leader(connection, 2)
    with pytest.raises(Deposed):
        await old._begin_again()
    assert [info.name for info in await connection.js.consumers_info(JOBS)] == ["queue-2"]


async def test_a_consumer_that_could_not_be_made_anew_yet_is_no_deposition(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = await leader(connection)
    [held] = await publish(connection, 1)
    await fetch_until(intake, held)
    reply = intake._replies[held]
    with monkeypatch.context() as away:
        away.setattr(connection.js, "add_consumer", AsyncMock(side_effect=nats.errors.TimeoutError))
        with pytest.raises(BrokerUnavailable):
            await intake._begin_again()
        with pytest.raises(nats.errors.NoRespondersError):
            await intake._ack(reply)
        with pytest.raises(BrokerUnavailable):
            await intake.fetch(10, 0.1)
    acking = asyncio.create_task(ack_all(intake, [held]))
    assert await intake.fetch(10, FETCH_SECONDS) == []
    await acking
    assert await num_stored(connection) == 0
