"""Cancel and status requests, between a leader and those who ask."""

from __future__ import annotations

import asyncio

import pytest

from headway.broker.connection import Connection
from headway.broker.control import ControlServer, request_cancel, request_status
from headway.broker.errors import BrokerRefused, BrokerUnavailable
from headway.broker.log_end import append_end
from headway.broker.log_store import JobLogs
from headway.core.errors import BrokerError
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import CancelAnswer, CancelOutcome
from headway.core.records import End
from headway.core.status import QueueStatus

KEY = JobKey("acme", "a1")
STATUS = QueueStatus(epoch=3, is_granting=True, models=(), workers=())


async def not_found(key: JobKey) -> CancelAnswer:
    return CancelAnswer(key, CancelOutcome.NOT_FOUND)


async def cancelled(key: JobKey) -> CancelAnswer:
    return CancelAnswer(key, CancelOutcome.CANCELLED, FinishReason.CANCELLED)


async def failing(key: JobKey) -> CancelAnswer:
    raise BrokerError("the log is full")


class Leading:
    """A leader for one test."""

    def __init__(self, connection: Connection, cancel=cancelled) -> None:  # type: ignore[no-untyped-def]
        self.server = ControlServer(connection, cancel, lambda: STATUS)

    async def __aenter__(self) -> ControlServer:
        await self.server.start()
        return self.server

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()


async def test_a_cancelled_job_is_answered_as_such(connection: Connection) -> None:
    async with Leading(connection):
        answer = await request_cancel(connection, KEY)
    assert answer == CancelAnswer(KEY, CancelOutcome.CANCELLED, FinishReason.CANCELLED)


async def test_a_job_that_has_ended_is_told_from_one_that_never_was(connection: Connection) -> None:
    await append_end(JobLogs(connection), KEY, End(FinishReason.LENGTH), "hash")
    async with Leading(connection, not_found):
        ended = await request_cancel(connection, KEY)
        unknown = await request_cancel(connection, JobKey("acme", "a2"))
    assert (ended.outcome, ended.finish_reason) == (CancelOutcome.ENDED, FinishReason.LENGTH)
    assert unknown.outcome is CancelOutcome.NOT_FOUND


async def test_a_request_that_waits_for_its_end_holds_up_no_other(connection: Connection) -> None:
    stored = asyncio.Event()

    async def slow(key: JobKey) -> CancelAnswer:
        if key == KEY:
            await stored.wait()
        return await cancelled(key)

    async with Leading(connection, slow):
        waiting = asyncio.create_task(request_cancel(connection, KEY))
        await request_cancel(connection, JobKey("acme", "a2"))
        assert not waiting.done()
        stored.set()
        assert (await waiting).outcome is CancelOutcome.CANCELLED


async def test_a_failure_is_an_answer_too(connection: Connection) -> None:
    async with Leading(connection, failing):
        with pytest.raises(BrokerRefused, match="the log is full"):
            await request_cancel(connection, KEY)


async def test_without_a_leader_the_request_fails_with_that_reason(connection: Connection) -> None:
    with pytest.raises(BrokerUnavailable, match="no queue leader"):
        await request_cancel(connection, KEY, timeout_seconds=0.2)


async def test_a_request_between_two_leaders_is_answered_by_the_next(connection: Connection) -> None:
    waiting = asyncio.create_task(request_cancel(connection, KEY))
    await asyncio.sleep(0)
    await connection.client.flush()
    async with Leading(connection):
        assert (await waiting).outcome is CancelOutcome.CANCELLED


async def test_the_status_comes_back_as_it_was_given(connection: Connection) -> None:
    async with Leading(connection):
        assert await request_status(connection) == STATUS
