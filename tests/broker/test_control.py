"""Cancel and status requests, between a leader and those who ask."""

from __future__ import annotations

import asyncio
import json
from typing import Any

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


async def caught_up() -> None:
    pass


class Leading:
    """A leader for one test."""

    def __init__(self, connection: Connection, cancel: Any = cancelled, catch_up: Any = caught_up) -> None:
        self.may_answer = True
        self.server = ControlServer(connection, cancel, lambda: STATUS, catch_up, lambda: self.may_answer)

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


async def test_a_job_that_the_queue_has_not_read_yet_is_cancelled_once_it_has(connection: Connection) -> None:
    has_read = asyncio.Event()

    async def cancel(key: JobKey) -> CancelAnswer:
        return await (cancelled if has_read.is_set() else not_found)(key)

    async def catch_up() -> None:
        has_read.set()

    async with Leading(connection, cancel, catch_up):
        assert (await request_cancel(connection, KEY)).outcome is CancelOutcome.CANCELLED


async def test_a_job_that_ended_while_the_queue_read_on_is_told_as_ended(connection: Connection) -> None:
    async def catch_up() -> None:
        await append_end(JobLogs(connection), KEY, End(FinishReason.LENGTH), "hash")

    async with Leading(connection, not_found, catch_up):
        answer = await request_cancel(connection, KEY)
    assert (answer.outcome, answer.finish_reason) == (CancelOutcome.ENDED, FinishReason.LENGTH)


async def test_whether_a_job_exists_stays_open_while_the_queue_cannot_read_on(connection: Connection) -> None:
    async def catch_up() -> None:
        raise BrokerUnavailable("read on", "not done")

    async with Leading(connection, not_found, catch_up):
        with pytest.raises(BrokerRefused, match="not done"):
            await request_cancel(connection, KEY)


async def test_for_a_job_that_has_ended_nobody_waits(connection: Connection) -> None:
    async def catch_up() -> None:
        raise AssertionError

    await append_end(JobLogs(connection), KEY, End(FinishReason.LENGTH), "hash")
    async with Leading(connection, not_found, catch_up):
        assert (await request_cancel(connection, KEY)).outcome is CancelOutcome.ENDED


@pytest.mark.parametrize("tokens", ["*.*", "acme.*", "*.a1", "Acme.a1", "acme.aü"])
async def test_what_names_no_single_job_is_refused(connection: Connection, tokens: str) -> None:
    await append_end(JobLogs(connection), KEY, End(FinishReason.LENGTH), "hash")
    async with Leading(connection, not_found):
        reply = await connection.client.request(f"headway.cancel.{tokens}", b"", timeout=10)
    answer = json.loads(reply.data)
    assert answer["outcome"] is None
    assert "one job" in answer["error"]


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
    with pytest.raises(BrokerUnavailable, match="no queue process"):
        await request_cancel(connection, KEY, timeout_seconds=0.2)


async def test_a_request_between_two_leaders_is_answered_by_the_next(connection: Connection) -> None:
    waiting = asyncio.create_task(request_cancel(connection, KEY))
    await asyncio.sleep(0)
    await connection.client.flush()
    async with Leading(connection):
        assert (await waiting).outcome is CancelOutcome.CANCELLED


async def test_a_leader_whose_time_is_over_leaves_the_answer_to_the_next(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.broker.control.TRY_SECONDS", 0.2)
    former = Leading(connection, failing)
    former.may_answer = False
    async with former:
        with pytest.raises(BrokerUnavailable, match="no answer"):
            await request_status(connection, timeout_seconds=0.2)
        waiting = asyncio.create_task(request_cancel(connection, KEY))
        async with Leading(connection):
            assert (await waiting).outcome is CancelOutcome.CANCELLED


async def test_the_status_comes_back_as_it_was_given(connection: Connection) -> None:
    async with Leading(connection):
        assert await request_status(connection) == STATUS
