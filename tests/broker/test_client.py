"""The public client against a real broker; a worker is played by `LogWriter`."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from nats.js.api import RawStreamMsg

from headway import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.control import ControlServer
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import BrokerUnavailable, Busy, Conflict, TooLarge
from headway.broker.log_end import append_end
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.results import JobResult
from headway.broker.streams import JOBS, ensure_streams, jobs_subject
from headway.core.errors import JobRejected, RejectCode
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import CancelAnswer, CancelOutcome
from headway.core.records import Attempt, End, ErrorInfo, GrantToken, Timings, Usage
from headway.core.status import QueueStatus

Eventually = Callable[..., Awaitable[None]]
STOP = End(FinishReason.STOP, usage=Usage(3, 0, 2), timings=Timings(0.1, 0.2, 0.3))


@pytest.fixture
async def client(connection: Connection, broker_config: BrokerConfig) -> AsyncIterator[Client]:
    async with Client.connect(tenant="acme", config=broker_config) as client:
        yield client


async def last_job(connection: Connection) -> RawStreamMsg:
    """The newest job of the stream."""
    return await connection.js.get_last_msg(JOBS, jobs_subject("default", "acme"))


async def take(connection: Connection, job_id: str, payload_hash: str | None, grant: int = 1) -> LogWriter:
    """Take a job up as its worker would."""
    logs = JobLogs(connection)
    writer = LogWriter(logs, await logs.read(JobKey("acme", job_id)), Pace())
    await writer.attempt(Attempt(0, GrantToken(1, grant), f"worker-{grant}", payload_hash or ""))
    return writer


async def work(connection: Connection, job_id: str, words: list[str], payload_hash: str | None) -> None:
    writer = await take(connection, job_id, payload_hash)
    for index, word in enumerate(words):
        writer.tokens([index], word)
        await asyncio.sleep(0)
    await writer.end(STOP)


async def submit_and_work(client: Client, connection: Connection, words: list[str]) -> JobResult:
    job = await client.submit("Hello")
    working = asyncio.create_task(work(connection, job.id, words, job.payload_hash))
    result = await job.result(10)
    await working
    return result


async def test_a_job_streams_from_the_worker_to_its_client(client: Client, connection: Connection) -> None:
    result = await submit_and_work(client, connection, ["Hel", "lo", "!"])
    assert (result.text, result.token_ids) == ("Hello!", (0, 1, 2))
    assert (result.finish_reason, result.usage, result.timings) == (STOP.finish_reason, STOP.usage, STOP.timings)
    assert result.is_complete
    assert result.num_attempts == 1


async def test_late_readers_get_the_same_result_each(client: Client, connection: Connection) -> None:
    result = await submit_and_work(client, connection, ["a", "b"])
    late = await asyncio.gather(*(client.result(result.id, 10) for _ in range(3)))
    assert late == [result] * 3


async def test_a_reader_may_come_before_the_job(client: Client, connection: Connection) -> None:
    waiting = asyncio.create_task(client.result("later", 10))
    await work(connection, "later", ["a"], "hash")
    assert (await waiting).text == "a"


async def test_a_result_that_does_not_come_in_time_is_named(client: Client) -> None:
    with pytest.raises(TimeoutError, match=r"job acme/never has not ended in 0\.05 s"):
        await client.result("never", timeout_seconds=0.05)


async def test_iterating_publishes_the_job_with_its_fields(client: Client, connection: Connection) -> None:
    stream = client.submit(messages=[{"role": "user", "content": "Hi"}], id="a1", max_tokens=4, stop=["x"], seed=None)
    first = asyncio.create_task(anext(stream))
    async with asyncio.timeout(10):
        while not (await connection.js.stream_info(JOBS)).state.messages:
            pass
    data = (await last_job(connection)).data or b""
    assert json.loads(data) == {
        "id": "a1",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 4,
        "stop": ["x"],
    }
    await work(connection, "a1", ["a"], hashlib.sha256(data).hexdigest())
    assert (await first).text == "a"
    assert [chunk.finish_reason async for chunk in stream] == [FinishReason.STOP]


async def test_a_job_is_part_of_the_trace_it_was_given(client: Client, connection: Connection) -> None:
    await client.submit("Hello", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    headers = (await last_job(connection)).headers or {}
    assert headers["traceparent"].startswith("00-0af7")


async def test_a_job_is_published_once_however_often_it_is_started(client: Client, connection: Connection) -> None:
    job = client.submit("Hello")
    await asyncio.gather(job.start(), job.start())
    await job
    assert (await connection.js.stream_info(JOBS)).state.messages == 1


async def test_a_resumed_job_shows_no_seam(client: Client, connection: Connection) -> None:
    job = await client.submit("Hello", id="a1")
    first = await take(connection, "a1", job.payload_hash, 1)
    first.tokens([0], "a")
    assert (await anext(job)).text == "a"
    second = await take(connection, "a1", job.payload_hash, 2)
    second.tokens([1], "b")
    await second.end(STOP)
    result = await job.result(10)
    assert (result.text, result.token_ids, result.num_attempts) == ("ab", (0, 1), 2)


async def test_a_rejected_job_is_a_result_with_an_error(client: Client, connection: Connection) -> None:
    job = await client.submit("Hello", max_tokens=0)
    error = ErrorInfo("invalid_value", "max_tokens", "must be ≥ 1")
    await append_end(JobLogs(connection), job.key, End(FinishReason.REJECTED, error), "")
    result = await job.result(10)
    assert (result.finish_reason, result.error, result.is_complete) == (FinishReason.REJECTED, error, False)


async def test_the_log_of_another_job_is_never_taken_for_ones_own(client: Client, connection: Connection) -> None:
    await work(connection, "a1", ["secret"], "of the first payload")
    with pytest.raises(Conflict):
        await client.submit("Hello", id="a1").result(10)


async def test_a_conflict_is_seen_where_the_first_job_never_ran(client: Client, connection: Connection) -> None:
    await append_end(JobLogs(connection), JobKey("acme", "a1"), End(FinishReason.EXPIRED), "of the first payload")
    with pytest.raises(Conflict):
        await client.submit("Hello", id="a1").result(10)


async def test_a_job_over_the_connections_limit_is_never_sent(client: Client, connection: Connection) -> None:
    with pytest.raises(TooLarge) as caught:
        await client.submit("x" * connection.max_payload)
    assert caught.value.size > caught.value.limit == connection.max_payload
    await client.submit("still connected")


async def test_a_job_over_the_streams_limit_is_too_large_as_well(client: Client, broker_config: BrokerConfig) -> None:
    with pytest.raises(TooLarge) as caught:
        await client.submit("x" * broker_config.max_job_bytes)
    assert caught.value.limit == broker_config.max_job_bytes


@pytest.mark.parametrize("limit", ["max_waiting_jobs", "max_waiting_jobs_per_tenant"])
async def test_a_full_queue_answers_busy_and_takes_the_job_later(
    connection: Connection, broker_config: BrokerConfig, client: Client, limit: str
) -> None:
    await ensure_streams(connection.js, replace(broker_config, **{limit: 1}))
    await client.submit("first")
    second = client.submit("second")
    with pytest.raises(Busy) as caught:
        await second
    assert caught.value.retry_after_seconds > 0
    await connection.js.purge_stream(JOBS)
    await second
    assert b'"second"' in ((await last_job(connection)).data or b"")


@pytest.mark.parametrize("job_id", ["a.b", "*", "a b", "x" * 129])
async def test_an_id_that_is_no_subject_is_rejected_at_once(client: Client, job_id: str) -> None:
    with pytest.raises(JobRejected):
        client.submit("Hello", id=job_id)
    with pytest.raises(JobRejected):
        client.follow(job_id)


async def test_a_reserved_id_cannot_be_given_but_can_be_followed(client: Client) -> None:
    with pytest.raises(JobRejected, match="reserved") as caught:
        client.submit("Hello", id="j12")
    assert (caught.value.code, caught.value.field) == (RejectCode.INVALID_VALUE, "id")
    assert client.follow("j12").id == "j12"


async def test_a_cancelled_job_ends_for_its_reader(client: Client, connection: Connection) -> None:
    job = await client.submit("Hello")

    async def cancel(key: JobKey) -> CancelAnswer:
        await append_end(JobLogs(connection), key, End(FinishReason.CANCELLED), "")
        return CancelAnswer(key, CancelOutcome.CANCELLED, FinishReason.CANCELLED)

    leader = ControlServer(connection, cancel, lambda: QueueStatus(1, True, (), ()), None)
    await leader.start()
    assert (await client.cancel(job.id)).outcome is CancelOutcome.CANCELLED
    assert (await job.result(10)).finish_reason is FinishReason.CANCELLED
    await leader.stop()


async def test_a_job_that_no_stream_takes_fails_with_that_reason(own_nats: EmbeddedNats) -> None:
    async with Client.connect(own_nats.url, tenant="acme") as client:
        with pytest.raises(BrokerUnavailable, match=r"no stream takes headway\.jobs\.default\.acme"):
            await client.submit("Hello", timeout_seconds=0.2)


async def test_many_jobs_share_one_client(client: Client, connection: Connection) -> None:
    jobs = [client.submit(f"prompt {number}") for number in range(200)]
    await asyncio.gather(*jobs)
    writers = await asyncio.gather(*(take(connection, job.id, job.payload_hash) for job in jobs))
    for number, writer in enumerate(writers):
        writer.tokens([number], f"answer {number}")
    await asyncio.gather(*(writer.end(STOP) for writer in writers))
    results = await asyncio.gather(*(job.result(20) for job in jobs))
    assert [result.text for result in results] == [f"answer {number}" for number in range(200)]


async def test_a_restart_of_the_broker_costs_no_token_and_repeats_none(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=0.5, nats_reconnect_seconds=0.05)
    async with (
        await connect(config, "worker", timeout_seconds=10) as worker,
        Client.connect(tenant="acme", config=config) as client,
    ):
        await ensure_streams(worker.js, config)
        job = await client.submit("Hello")
        reading = asyncio.create_task(job.result(30))
        writer = await take(worker, job.id, job.payload_hash)
        for token_id in range(5):
            writer.tokens([token_id], str(token_id))
        await own_nats.stop()
        for token_id in range(5, 10):
            writer.tokens([token_id], str(token_id))
        await own_nats.start()
        await writer.end(STOP)
        assert (await reading).token_ids == tuple(range(10))


async def test_a_closed_client_ends_its_readers_with_an_error(
    broker_config: BrokerConfig, connection: Connection
) -> None:
    client = await Client.connect(tenant="acme", config=broker_config)
    reading = asyncio.create_task((await client.submit("Hello")).result(10))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(BrokerUnavailable, match="the client is closed"):
        await reading


async def test_a_closed_client_takes_no_job_and_does_not_wait(client: Client) -> None:
    await client.close()
    for call in (client.submit("Hello", timeout_seconds=60).start(), client.status(60), client.cancel("a1", 60)):
        with pytest.raises(BrokerUnavailable, match="the client is closed"):
            async with asyncio.timeout(10):
                await call


async def test_a_client_says_whether_it_is_connected(own_nats: EmbeddedNats, eventually: Eventually) -> None:
    async with Client.connect(own_nats.url) as client:
        assert client.connection_state().connected
        await own_nats.stop()
        await eventually(lambda: not client.connection_state().connected)
        assert own_nats.url in client.connection_state().reason


async def test_a_stream_that_nobody_reads_is_not_kept(client: Client) -> None:
    job = await client.submit("Hello")
    forgotten = weakref.ref(job)
    del job
    gc.collect()
    assert forgotten() is None


def test_importing_headway_loads_no_broker() -> None:
    code = "import sys, headway; assert 'nats' not in sys.modules; headway.Client; assert 'nats' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
