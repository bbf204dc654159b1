"""The leader's end of a job that no worker runs."""

from __future__ import annotations

import pytest

from headway.broker.connection import Connection
from headway.broker.log_end import EndResult, append_end
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.streams import RESULTS, log_subject
from headway.core.job import FinishReason, JobKey
from headway.core.records import Attempt, End, GrantToken, Usage

KEY = JobKey("acme", "a1")
EXPIRED = End(FinishReason.EXPIRED)


@pytest.fixture
def logs(connection: Connection) -> JobLogs:
    return JobLogs(connection)


async def attempted(logs: JobLogs) -> LogWriter:
    writer = LogWriter(logs, await logs.read(KEY), Pace())
    await writer.attempt(Attempt(0, GrantToken(1, 1), "worker", "mine"))
    return writer


async def test_a_job_that_never_ran_is_ended_once(logs: JobLogs) -> None:
    first = await append_end(logs, KEY, EXPIRED, "mine")
    again = await append_end(logs, KEY, End(FinishReason.CANCELLED), "mine")
    assert (first.result, again.result) == (EndResult.WRITTEN, EndResult.ALREADY_ENDED)
    assert again.state.end == EXPIRED


async def test_the_log_of_another_payload_is_left_alone(logs: JobLogs) -> None:
    await append_end(logs, KEY, EXPIRED, "first")
    assert (await append_end(logs, KEY, EXPIRED, "second")).result is EndResult.OTHER_JOB


async def test_a_running_log_of_another_payload_is_left_alone(logs: JobLogs) -> None:
    writer = await attempted(logs)
    assert (await append_end(logs, KEY, EXPIRED, "other")).result is EndResult.OTHER_JOB
    await writer.end(End(FinishReason.STOP))


async def test_the_end_of_a_lost_attempt_counts_what_was_delivered(logs: JobLogs) -> None:
    writer = await attempted(logs)
    writer.tokens([5, 6], "ab")
    await writer.flush()
    outcome = await append_end(logs, KEY, End(FinishReason.CANCELLED), "mine")
    assert outcome.state.end == End(FinishReason.CANCELLED, usage=Usage(completion_tokens=2))


async def test_a_log_that_lost_its_first_records_is_ended_all_the_same(logs: JobLogs, connection: Connection) -> None:
    writer = await attempted(logs)
    for text in ("a", "b"):
        writer.tokens([5], text)
        await writer.flush()
    await connection.js.purge_stream(RESULTS, subject=log_subject(KEY), keep=1)
    first = await append_end(logs, KEY, EXPIRED, "mine")
    again = await append_end(logs, KEY, EXPIRED, "mine")
    assert (first.result, again.result) == (EndResult.WRITTEN, EndResult.ALREADY_ENDED)
