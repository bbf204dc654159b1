import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import Deposed, MessageMissing, StreamMismatch
from headway.broker.intake import IncomingJob, JobsIntake
from headway.broker.streams import JOBS, ensure_streams, jobs_subject

FETCH_SECONDS = 10.0
Eventually = Callable[..., Awaitable[None]]


async def publish(connection: Connection, payload: bytes = b"{}", tenant: str = "acme", **headers: str) -> int:
    ack = await connection.js.publish(jobs_subject("default", tenant), payload, headers=headers or None)
    return ack.seq


async def leader(connection: Connection, epoch: int = 1) -> JobsIntake:
    intake = JobsIntake(connection)
    await intake.takeover(epoch)
    return intake


async def fetch_all(intake: JobsIntake, count: int) -> list[IncomingJob]:
    jobs: list[IncomingJob] = []
    async with asyncio.timeout(FETCH_SECONDS):
        while len(jobs) < count:
            jobs += await intake.fetch(100, FETCH_SECONDS)
    return jobs


async def num_stored(connection: Connection) -> int:
    return (await connection.js.stream_info(JOBS)).state.messages


async def test_a_published_job_arrives_as_it_was_sent(connection: Connection) -> None:
    intake = await leader(connection)
    before = time.time()
    sequence = await publish(connection, b'{"prompt":"x"}', tenant="beta-2")
    [job] = await intake.fetch(10, FETCH_SECONDS)
    assert (job.model, job.tenant, job.payload, job.stream_sequence) == (
        "default",
        "beta-2",
        b'{"prompt":"x"}',
        sequence,
    )
    assert before - 1 <= job.arrival_seconds <= time.time() + 1
    assert job.traceparent is None


async def test_jobs_come_in_stream_order_without_a_pause_between_batches(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.broker.pull.BACK_OFF_SECONDS", 3600.0)
    sequences = [await publish(connection) for _ in range(1200)]
    intake = await leader(connection)
    assert intake.num_unread == 1200
    assert [job.stream_sequence for job in await fetch_all(intake, 1200)] == sequences
    assert intake.num_unread == 0


async def test_more_jobs_than_one_page_may_be_fetched_without_an_ack(connection: Connection) -> None:
    for _ in range(30):
        await publish(connection)
    intake = await leader(connection)
    first = await intake.fetch(20, FETCH_SECONDS)
    assert 0 < len(first) <= 20
    rest = await fetch_all(intake, 30 - len(first))
    assert len({job.stream_sequence for job in first + rest}) == 30


async def test_an_empty_queue_gives_nothing_after_the_timeout(connection: Connection) -> None:
    assert await (await leader(connection)).fetch(10, 0.05) == []


async def test_a_job_that_comes_after_an_empty_fetch_is_not_lost(connection: Connection) -> None:
    intake = await leader(connection)
    assert await intake.fetch(10, 0.05) == []
    sequence = await publish(connection)
    assert [job.stream_sequence for job in await intake.fetch(10, FETCH_SECONDS)] == [sequence]


@pytest.mark.parametrize("name", ["traceparent", "Traceparent", "TRACEPARENT"])
async def test_the_traceparent_is_found_in_any_case(connection: Connection, name: str) -> None:
    value = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await publish(connection, **{name: value})
    [job] = await (await leader(connection)).fetch(10, FETCH_SECONDS)
    assert job.traceparent == value


async def test_a_malformed_traceparent_is_none(connection: Connection) -> None:
    await publish(connection, traceparent="00-nonsense")
    [job] = await (await leader(connection)).fetch(10, FETCH_SECONDS)
    assert job.traceparent is None


async def test_an_acknowledged_job_leaves_the_stream(connection: Connection) -> None:
    intake = await leader(connection)
    sequence = await publish(connection)
    await publish(connection)
    await fetch_all(intake, 2)
    await intake.ack(sequence)
    assert await num_stored(connection) == 1
    with pytest.raises(MessageMissing):
        await intake.get_payload(sequence)


async def test_acknowledging_twice_or_at_once_or_something_unknown_is_harmless(connection: Connection) -> None:
    intake = await leader(connection)
    sequences = [await publish(connection) for _ in range(100)]
    await fetch_all(intake, 100)
    await asyncio.gather(*(intake.ack(sequence) for sequence in sequences * 2))
    await intake.ack(sequences[0])
    await intake.ack(4711)
    assert await num_stored(connection) == 0


async def test_many_jobs_are_acknowledged_together(connection: Connection) -> None:
    intake = await leader(connection)
    sequences = [await publish(connection) for _ in range(300)]
    await fetch_all(intake, 300)
    await intake.ack_together([*sequences[:200], 4711])
    assert await num_stored(connection) == 100
    await intake.ack_together(sequences)
    await intake.ack_together([])
    assert await num_stored(connection) == 0


async def test_a_leader_that_has_ended_listens_to_nothing_any_more(connection: Connection) -> None:
    async def num_subscriptions() -> int:
        await connection.client.flush()
        return len(connection.client._subs)

    await connection.client.request("$JS.API.INFO")  # whose answers come to an inbox that stays
    num_before = await num_subscriptions()
    intake = await leader(connection)
    await publish(connection)
    [job] = await fetch_all(intake, 1)
    await intake.ack_together([job.stream_sequence])
    await intake.close()
    assert await num_subscriptions() == num_before


async def test_a_deposed_leader_cannot_acknowledge_many_either(connection: Connection) -> None:
    old = await leader(connection, 1)
    sequences = [await publish(connection) for _ in range(3)]
    await fetch_all(old, 3)
    await leader(connection, 2)
    with pytest.raises(Deposed):
        await old.ack_together(sequences)
    assert await num_stored(connection) == 3


async def test_what_is_not_confirmed_together_is_acknowledged_one_by_one(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    intake = await leader(connection)
    sequences = [await publish(connection) for _ in range(3)]
    await fetch_all(intake, 3)

    async def lose_all(replies: Iterable[str]) -> set[str]:
        return set()

    monkeypatch.setattr(intake._acknowledger, "ack", lose_all)
    await intake.ack_together(sequences)
    assert await num_stored(connection) == 0


async def test_a_payload_can_be_fetched_again_while_the_job_is_held(connection: Connection) -> None:
    intake = await leader(connection)
    sequence = await publish(connection, b'{"prompt":"again"}')
    await fetch_all(intake, 1)
    assert await intake.get_payload(sequence) == b'{"prompt":"again"}'


async def test_a_takeover_delivers_every_unacknowledged_job_again(connection: Connection) -> None:
    first = await leader(connection, 1)
    sequences = [await publish(connection) for _ in range(5)]
    await fetch_all(first, 5)
    await first.ack(sequences[2])
    second = await leader(connection, 2)
    delivered = [job.stream_sequence for job in await fetch_all(second, 4)]
    assert delivered == [sequence for sequence in sequences if sequence != sequences[2]]


async def test_a_deposed_leader_can_neither_fetch_nor_acknowledge(connection: Connection) -> None:
    old = await leader(connection, 1)
    sequence = await publish(connection)
    await fetch_all(old, 1)
    await leader(connection, 2)
    with pytest.raises(Deposed):
        await old.fetch(10, FETCH_SECONDS)
    with pytest.raises(Deposed):
        await old.ack(sequence)
    assert await num_stored(connection) == 1


async def test_a_leader_that_waits_for_jobs_learns_at_once_that_it_is_deposed(
    connection: Connection, eventually: Eventually
) -> None:
    old = await leader(connection, 1)
    waiting = asyncio.create_task(old.fetch(10, 3600.0))

    async def is_waiting() -> bool:
        return (await connection.js.consumer_info(JOBS, "queue-1")).num_waiting == 1

    await eventually(is_waiting)
    await leader(connection, 2)
    with pytest.raises(Deposed) as caught:
        async with asyncio.timeout(FETCH_SECONDS):
            await waiting
    assert caught.value.epoch == 1


async def test_a_late_takeover_of_a_lower_epoch_is_refused(connection: Connection) -> None:
    await leader(connection, 5)
    with pytest.raises(Deposed):
        await leader(connection, 4)


async def test_of_racing_takeovers_the_highest_epoch_wins(connection: Connection) -> None:
    intakes = {epoch: JobsIntake(connection) for epoch in range(1, 7)}
    await asyncio.gather(*(intake.takeover(epoch) for epoch, intake in intakes.items()), return_exceptions=True)
    await publish(connection)
    assert len(await fetch_all(intakes[6], 1)) == 1
    assert await intakes[6].latest_epoch() == 6


async def test_a_consumer_of_someone_else_is_named(connection: Connection) -> None:
    await connection.js.add_consumer(JOBS, durable_name="curious")
    with pytest.raises(StreamMismatch, match="curious"):
        await leader(connection)


async def test_the_latest_epoch_is_known_from_the_consumer(connection: Connection) -> None:
    assert await JobsIntake(connection).latest_epoch() == 0
    await leader(connection, 7)
    assert await JobsIntake(connection).latest_epoch() == 7


async def test_a_fetch_that_waits_outlives_a_crash_of_the_server(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.05)
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
        intake = await leader(connection)
        assert await intake.fetch(10, 0.05) == []
        fetching = asyncio.create_task(fetch_all(intake, 1))
        await own_nats.stop(kill=True)
        await own_nats.start()
        async with await connect(config, "client", timeout_seconds=10) as client:
            sequence = await publish(client)
            assert [job.stream_sequence for job in await fetching] == [sequence]


@pytest.mark.parametrize("together", [True, False])
async def test_the_leader_goes_on_after_a_restart_of_the_server(
    own_nats: EmbeddedNats, eventually: Eventually, together: bool
) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.05)
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
        intake = await leader(connection)
        first = await publish(connection)
        await fetch_all(intake, 1)
        await own_nats.stop()
        acking = asyncio.create_task(intake.ack_together([first]) if together else intake.ack(first))
        await own_nats.start()
        async with asyncio.timeout(20):
            await acking
        await eventually(lambda: connection.state.connected)
        second = await publish(connection)
        assert [job.stream_sequence for job in await fetch_all(intake, 1)] == [second]
