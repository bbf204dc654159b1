"""`headway streams`, and what a full queue means to `headway submit`."""

import asyncio
from dataclasses import replace

from headway.broker.client import Client
from headway.broker.connection import connect
from headway.broker.errors import Busy
from headway.broker.log_end import append_end
from headway.broker.log_store import JobLogs
from headway.broker.streams import JOBS, ensure_streams
from headway.commands import submitting
from headway.core.job import FinishReason
from headway.core.records import End, ErrorInfo


def run(headway, nats, *arguments):
    return headway("streams", *arguments, HEADWAY_NATS_URL=nats.url)


async def test_missing_streams_are_reported_then_created_then_right(fresh_nats, headway):
    def of(*arguments):
        return asyncio.to_thread(run, headway, fresh_nats, *arguments)

    missing, created, checked = await of("check"), await of("create"), await of("check")
    assert [done.returncode for done in (missing, created, checked)] == [1, 0, 0]
    assert missing.stdout.count("does not exist") == created.stdout.count("created") == 4
    assert checked.stdout.count("is there") == 4


async def test_a_stream_that_is_not_as_it_must_be_is_named_with_the_difference(fresh_nats, headway, broker_config):
    async with await connect(broker_config, "tests", timeout_seconds=10) as connection:
        await connection.js.add_stream(name=JOBS, subjects=["headway.jobs.>"])
    done = await asyncio.to_thread(run, headway, fresh_nats, "create")
    assert done.returncode == 1
    (wrong,) = [line for line in done.stdout.splitlines() if "WRONG" in line]
    assert "subjects must be" in wrong
    assert "headway.jobs.>" in wrong


async def test_limits_of_existing_streams_follow_the_settings(fresh_nats, headway):
    await asyncio.to_thread(run, headway, fresh_nats, "create")
    done = await asyncio.to_thread(run, headway, fresh_nats, "create", "--max-waiting-jobs", "7")
    assert "HEADWAY_JOBS         limits updated" in done.stdout


async def test_a_full_queue_is_asked_again_until_it_takes_the_job(broker_config, monkeypatch):
    config = replace(broker_config, max_waiting_jobs=1)
    async with Client.connect(config=config) as client, await connect(config, "tests") as connection:
        await ensure_streams(connection.js, config)
        pauses = []

        class Pauses:
            def __init__(self, *_):
                pass

            async def pause(self):
                pauses.append(await connection.js.purge_stream(JOBS))

        monkeypatch.setattr(submitting, "Backoff", Pauses)
        first, second = client.submit("first"), client.submit("second")
        await submitting.start(first)
        await submitting.start(second)
        assert pauses == [True]


async def test_a_job_that_the_queue_had_no_bytes_for_is_offered_again_under_another_id(broker_config, monkeypatch):
    busy = ErrorInfo("busy", None, "this tenant has too much in the queue")
    async with Client.connect(config=broker_config) as client, await connect(broker_config, "tests") as connection:
        await ensure_streams(connection.js, broker_config)
        logs, pauses = JobLogs(connection), []

        class Pauses:
            def __init__(self, *_):
                pass

            async def pause(self):
                pauses.append(1)

        submit, ends = client.submit, iter([End(FinishReason.REJECTED, busy), End(FinishReason.LENGTH)] * 2)

        def submit_and_answer(*arguments, **fields):
            stream = submit(*arguments, **fields)
            answers.append(asyncio.create_task(append_end(logs, stream.key, next(ends), stream.payload_hash)))
            return stream

        answers = []
        monkeypatch.setattr(submitting, "Backoff", Pauses)
        monkeypatch.setattr(client, "submit", submit_and_answer)
        async with submitting.Submitter(client) as submitter:
            made_up = await submitter.outcome({"prompt": "Hello"})
            assert (made_up.is_complete, pauses) == (True, [1])
            named = await submitter.outcome({"prompt": "Hello", "id": "a1"})
        assert (named.is_complete, pauses) == (False, [1]), "its id is the user's own"
        assert isinstance(named.error, Busy)
