"""One attempt's writer, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.broker.codec import decode_record
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import Fenced, LogConflict, LogEnded
from headway.broker.log_end import append_end
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.replay import read_page
from headway.broker.streams import RESULTS, ensure_streams, log_subject
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken, Record, Released, TokenLogprobs, Tokens

KEY = JobKey("acme", "a1")
STOP = End(FinishReason.STOP)
NEVER = 3600.0
"""A chunk interval that only the end of a job cuts short."""


def attempt(grant: int, payload_hash: str = "hash") -> Attempt:
    return Attempt(0, GrantToken(1, grant), f"worker-{grant}", payload_hash)


async def writer(connection: Connection, grant: int, chunk_interval_seconds: float = 0.0) -> LogWriter:
    logs = JobLogs(connection)
    writer = LogWriter(logs, await logs.read(KEY), Pace(chunk_interval_seconds))
    await writer.attempt(attempt(grant))
    return writer


async def records(connection: Connection) -> list[Record]:
    messages = await read_page(connection, RESULTS, log_subject(KEY), 1)
    return [decode_record(message.data) for message in messages]


async def turn_of_the_loop() -> None:
    """The turn of the pace, the tasks of the writers, their publishes; no acknowledgement is as fast."""
    for _ in range(3):
        await asyncio.sleep(0)


async def until_stored(connection: Connection, token_ids: list[int]) -> None:
    logs = JobLogs(connection)
    async with asyncio.timeout(20):
        while (await logs.read(KEY)).output_token_ids != token_ids:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


@pytest.fixture
async def small_connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """To a server that takes messages of 4 KiB at most."""
    async with EmbeddedNats(tmp_path / "nats", max_payload=4096) as server:
        config = BrokerConfig(nats_url=server.url, max_job_bytes=2048)
        async with await connect(config, "small", timeout_seconds=10) as connection:
            await ensure_streams(connection.js, config)
            yield connection


async def test_a_log_is_attempt_tokens_end(connection: Connection) -> None:
    first = await writer(connection, 1)
    first.tokens([5], "a")
    await first.end(STOP)
    assert await records(connection) == [
        Attempt(1, GrantToken(1, 1), "worker-1", "hash"),
        Tokens(0, 0, (5,), "a"),
        STOP,
    ]


async def test_the_first_tokens_go_at_once_and_later_ones_travel_together(connection: Connection) -> None:
    first = await writer(connection, 1, chunk_interval_seconds=NEVER)
    first.tokens([5], "a")
    await first.flush()
    for token_id in (6, 7, 8):
        first.tokens([token_id], chr(token_id + 91), [TokenLogprobs(-0.5)])
    assert first.num_pending_tokens == 3
    await first.end(STOP)
    logprobs = (TokenLogprobs(-0.5),) * 3
    assert (await records(connection))[1:] == [Tokens(0, 0, (5,), "a"), Tokens(1, 1, (6, 7, 8), "abc", logprobs), STOP]


async def test_tokens_that_come_while_a_record_is_on_its_way_follow_it(connection: Connection) -> None:
    first = await writer(connection, 1)
    first.tokens([5], "a")
    await turn_of_the_loop()
    assert connection.acked.num_waiting == 1
    first.tokens([6], "b")
    assert first.num_pending_tokens == 1
    await until_stored(connection, [5, 6])


async def test_the_first_tokens_of_a_job_do_not_wait_for_the_others(connection: Connection) -> None:
    logs, pace = JobLogs(connection), Pace(NEVER)
    pace.add(lambda: None)
    await turn_of_the_loop()
    first = LogWriter(logs, await logs.read(KEY), pace)
    await first.attempt(attempt(1))
    first.tokens([5], "a")
    await until_stored(connection, [5])
    first.tokens([6], "b")
    await turn_of_the_loop()
    assert first.num_pending_tokens == 1
    await first.end(STOP)


async def test_tokens_of_all_jobs_go_out_in_the_same_turn(connection: Connection) -> None:
    logs, pace = JobLogs(connection), Pace()
    keys = [JobKey("acme", f"a{number}") for number in range(8)]
    writers = [LogWriter(logs, await logs.read(key), pace) for key in keys]
    for number, each in enumerate(writers):
        await each.attempt(attempt(number + 1))
        each.tokens([5], "a")
        await each.flush()
    for each in writers:
        each.tokens([6], "b")
    await turn_of_the_loop()
    assert connection.acked.num_waiting == len(writers)
    for each in writers:
        await each.end(STOP)
        assert each.state.output_text == "ab"


async def test_after_a_fault_in_writing_nothing_follows_the_gap(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await writer(connection, 1)
    with monkeypatch.context() as broken:
        broken.setattr("headway.broker.log_writer.encode_record", lambda record: 1 / 0)
        first.tokens([5], "lost")
        with pytest.raises(ZeroDivisionError):
            await first.flush()
    first.tokens([6], "must not be read without the one before")
    with pytest.raises(ZeroDivisionError):
        await first.end(STOP)
    assert [type(record) for record in await records(connection)] == [Attempt]


async def test_a_new_attempt_fences_the_old_writer(connection: Connection) -> None:
    old = await writer(connection, 1)
    new = await writer(connection, 2)
    with pytest.raises(Fenced, match="attempt 2 on worker-2"):
        await old.end(STOP)
    new.tokens([5], "a")
    await new.end(STOP)
    assert [type(record) for record in await records(connection)] == [Attempt, Attempt, Tokens, End]


async def test_tokens_of_a_fenced_writer_raise_once_it_is_known(connection: Connection) -> None:
    old = await writer(connection, 1)
    await writer(connection, 2)
    old.tokens([5], "never seen")
    with pytest.raises(Fenced):
        await old.flush()
    with pytest.raises(Fenced):
        old.tokens([6], "never seen either")
    assert [type(record) for record in await records(connection)] == [Attempt, Attempt]


async def test_an_attempt_takes_up_what_the_old_writer_stored_meanwhile(connection: Connection) -> None:
    logs = JobLogs(connection)
    old = await writer(connection, 1)
    new = LogWriter(logs, await logs.read(KEY), Pace())
    old.tokens([5, 6], "ab")
    await old.flush()
    state = await new.attempt(attempt(2))
    assert (state.output_token_ids, state.output_text, state.num_attempts) == ([5, 6], "ab", 2)
    new.tokens([7], "c")
    await new.end(STOP)
    assert (await records(connection))[-2:] == [Tokens(1, 2, (7,), "c"), STOP]


@pytest.mark.parametrize("grant", [1, 2])
async def test_an_equal_or_lower_grant_is_refused(connection: Connection, grant: int) -> None:
    await writer(connection, 2)
    with pytest.raises(Fenced):
        await writer(connection, grant)


async def test_a_job_that_has_ended_cannot_be_taken_up(connection: Connection) -> None:
    await (await writer(connection, 1)).end(STOP)
    with pytest.raises(LogEnded) as caught:
        await writer(connection, 2)
    assert caught.value.end == STOP


async def test_a_log_of_another_payload_is_a_conflict(connection: Connection) -> None:
    await writer(connection, 1)
    logs = JobLogs(connection)
    with pytest.raises(LogConflict):
        await LogWriter(logs, await logs.read(KEY), Pace()).attempt(attempt(2, "other"))


async def test_an_end_by_the_leader_fences_the_worker_and_tells_it_why(connection: Connection) -> None:
    running = await writer(connection, 1)
    await append_end(JobLogs(connection), KEY, End(FinishReason.CANCELLED), "hash")
    with pytest.raises(LogEnded) as caught:
        await running.end(STOP)
    assert caught.value.end.finish_reason is FinishReason.CANCELLED


async def test_ending_twice_writes_one_end(connection: Connection) -> None:
    first = await writer(connection, 1)
    await first.end(STOP)
    await first.end(STOP)
    assert [type(record) for record in await records(connection)] == [Attempt, End]


async def test_a_released_job_keeps_its_tokens_and_its_attempt_does_not_count(connection: Connection) -> None:
    first = await writer(connection, 1, chunk_interval_seconds=NEVER)
    for token_id in (5, 6):
        first.tokens([token_id], "x")
    await first.release(Released("drain", GrantToken(1, 1)))
    state = await JobLogs(connection).read(KEY)
    assert (state.output_token_ids, state.num_counted_attempts) == ([5, 6], 0)


@pytest.mark.parametrize(("num_pieces", "num_tokens"), [(64, 8), (1, 2000), (3, 1)])
async def test_no_record_is_larger_than_the_server_takes(
    small_connection: Connection, num_pieces: int, num_tokens: int
) -> None:
    big = await writer(small_connection, 1, chunk_interval_seconds=NEVER)
    texts = [f"{number:05}" * 600 for number in range(num_pieces)]
    ids = [list(range(number, number + num_tokens)) for number in range(num_pieces)]
    for token_ids, text in zip(ids, texts, strict=True):
        big.tokens(token_ids, text, [TokenLogprobs(-1.0)] * num_tokens)
    await big.end(STOP)
    state = await JobLogs(small_connection).read(KEY)
    assert state.output_text == "".join(texts)
    assert state.output_token_ids == [token_id for token_ids in ids for token_id in token_ids]
    assert state.end == STOP


async def test_what_piles_up_while_the_server_is_away_is_stored_once_it_is_back(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=0.5, nats_reconnect_seconds=0.05)
    lost = asyncio.Event()
    async with await connect(
        config, "worker", timeout_seconds=10, on_change=lambda state: state.connected or lost.set()
    ) as connection:
        await ensure_streams(connection.js, config)
        first = await writer(connection, 1)
        await own_nats.stop()
        for token_id in range(100):
            first.tokens([token_id], "x")
        ending = asyncio.create_task(first.end(STOP))
        await lost.wait()
        await own_nats.start()
        await asyncio.wait_for(ending, 20)
        state = await JobLogs(connection).read(KEY)
        assert state.output_token_ids == list(range(100))
        assert state.end == STOP
