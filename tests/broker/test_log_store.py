"""Reading and appending, against a real server."""

from __future__ import annotations

import asyncio

import pytest

from headway.broker.codec import encode_record
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import TooLarge
from headway.broker.log_store import Append, JobLogs, Refused, Stored
from headway.broker.replay import PAGE_MESSAGES
from headway.broker.streams import ensure_streams, log_subject, results_subject
from headway.core.job import FinishReason, JobKey
from headway.core.records import End, Record, Tokens

KEY = JobKey("acme", "a1")


@pytest.fixture
def logs(connection: Connection) -> JobLogs:
    return JobLogs(connection)


def append(record: Record, expected: int, write_id: str, key: JobKey = KEY) -> Append:
    return Append(key, record, expected, write_id)


def tokens(seq: int, text: str = "x") -> Tokens:
    return Tokens(seq, seq, (seq,), text)


async def write(logs: JobLogs, num_records: int, key: JobKey = KEY) -> int:
    """A log of that many ``tokens`` records; returns its last stream sequence."""
    last = 0
    for seq in range(num_records):
        stored = await logs.append(append(tokens(seq), last, f"w{seq}", key))
        assert isinstance(stored, Stored)
        last = stored.sequence
    return last


async def test_an_empty_log_has_no_tail_and_an_empty_state(logs: JobLogs) -> None:
    assert await logs.tail(KEY) is None
    assert (await logs.read(KEY)).last_sequence == 0


async def test_a_log_of_several_pages_is_read_whole(logs: JobLogs, connection: Connection) -> None:
    num_records = 2 * PAGE_MESSAGES + 3
    await write(logs, 3, JobKey("acme", "neighbour"))
    records = (encode_record(tokens(seq)) for seq in range(num_records))
    await asyncio.gather(*(connection.js.publish(log_subject(KEY), record) for record in records))
    assert (await logs.read(KEY)).output_token_ids == list(range(num_records))


async def test_the_wrong_expectation_is_refused_with_the_tail(logs: JobLogs) -> None:
    last = await write(logs, 2)
    outcome = await logs.append(append(tokens(9), 0, "late"))
    assert isinstance(outcome, Refused)
    assert outcome.tail is not None
    assert (outcome.tail.sequence, outcome.tail.record) == (last, tokens(1))
    assert (await logs.read(KEY)).output_token_ids == [0, 1]


async def test_a_repeat_whose_first_try_was_stored_is_told_from_a_refusal(logs: JobLogs) -> None:
    first = append(tokens(0), 0, "mine")
    stored = await logs.append(first)
    assert await logs.append(first) == stored
    assert (await logs.read(KEY)).output_token_ids == [0]


async def test_two_writers_at_once_never_both_store(logs: JobLogs) -> None:
    outcomes = await asyncio.gather(*(logs.append(append(tokens(0), 0, f"w{n}")) for n in range(20)))
    assert sum(isinstance(outcome, Stored) for outcome in outcomes) == 1


async def test_a_plain_subscriber_to_the_results_sees_no_refused_record(logs: JobLogs, connection: Connection) -> None:
    seen = await connection.client.subscribe(results_subject(KEY))
    await write(logs, 1)
    await logs.append(append(tokens(1, "refused"), 0, "late"))
    await logs.append(append(End(FinishReason.STOP), (await logs.read(KEY)).last_sequence, "end"))
    bodies = [(await seen.next_msg(5)).data for _ in range(2)]
    assert not any(b"refused" in body for body in bodies)
    assert b'"end"' in bodies[1]


async def test_a_record_that_no_message_can_carry_is_refused_before_it_is_sent(logs: JobLogs) -> None:
    with pytest.raises(TooLarge):
        await logs.append(append(tokens(0, "x" * logs.max_record_bytes), 0, "huge"))
    assert await logs.tail(KEY) is None


async def test_an_append_outlives_a_restart_of_the_server(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=0.5, nats_reconnect_seconds=0.05)
    lost = asyncio.Event()
    async with await connect(
        config, "writer", timeout_seconds=10, on_change=lambda state: state.connected or lost.set()
    ) as connection:
        await ensure_streams(connection.js, config)
        logs = JobLogs(connection)
        last = await write(logs, 1)
        await own_nats.stop()
        waiting = asyncio.create_task(logs.append(append(tokens(1), last, "w1")))
        await lost.wait()
        await own_nats.start()
        assert isinstance(await asyncio.wait_for(waiting, 20), Stored)
        assert (await logs.read(KEY)).output_token_ids == [0, 1]
