"""How far the queue has read, and who waits for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from nats.errors import NoRespondersError

from headway.broker.intake import IncomingJob, JobsIntake
from headway.roles.queue_intake import QueueIntake

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]


@pytest_asyncio.fixture(loop_scope="session")
async def gate(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """While it is not set, jobs that have come from NATS do not get to the queue."""
    fetch, gate = JobsIntake.fetch, asyncio.Event()
    gate.set()

    async def fetch_slowly(self: JobsIntake, max_jobs: int, timeout_seconds: float) -> list[IncomingJob]:
        jobs = await fetch(self, max_jobs, timeout_seconds)
        await gate.wait()
        return jobs

    monkeypatch.setattr(JobsIntake, "fetch", fetch_slowly)
    yield gate
    gate.set()


async def cancel(parts: Any, tenant: str, job_id: str) -> dict[str, Any]:
    """The answer; a leader that has just begun may not listen yet."""
    while True:
        with suppress(NoRespondersError):
            reply = await parts.wire.client.request(f"headway.cancel.{tenant}.{job_id}", b"", timeout=20)
            answer: dict[str, Any] = json.loads(reply.data)
            return answer


async def test_a_job_that_was_not_read_yet_is_cancelled_once_it_is(
    parts: Any, tenant: str, job: Job, gate: asyncio.Event
) -> None:
    await parts.queue()
    gate.clear()
    await parts.wire.publish(tenant, job(id="a1"))
    cancelling = asyncio.create_task(cancel(parts, tenant, "a1"))
    await asyncio.wait([cancelling], timeout=0.5)
    assert not cancelling.done()
    gate.set()
    assert (await cancelling)["outcome"] == "cancelled"
    assert (await parts.wire.ended(tenant, "a1")).kinds == ["end"]


async def test_who_cancels_an_unread_job_is_not_left_waiting(
    parts: Any, tenant: str, job: Job, gate: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.roles.queue_intake.CATCH_UP_SECONDS", 0.1)
    await parts.queue()
    gate.clear()
    await parts.wire.publish(tenant, job(id="a1"))
    answer = await cancel(parts, tenant, "a1")
    assert answer["outcome"] is None
    assert "try again" in answer["error"]


async def test_a_queue_that_begins_with_an_empty_stream_knows_at_once_what_never_was(
    parts: Any, tenant: str, job: Job
) -> None:
    first = await parts.queue()
    await parts.wire.publish(tenant, job(id="a1"))
    await cancel(parts, tenant, "a1")
    await first.close()
    await parts.queue()
    assert (await cancel(parts, tenant, "never"))["outcome"] == "not_found"


async def test_others_have_their_turn_while_many_jobs_are_taken_in(
    parts: Any, tenant: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewal of the leader's lock, for one."""
    monkeypatch.setattr("headway.roles.queue_intake.SLICE_SECONDS", 0.0)
    turns, taken_at = 0, []

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    take_in = QueueIntake._take_in

    async def take_in_and_note(self: QueueIntake, message: IncomingJob) -> None:
        await take_in(self, message)
        taken_at.append(turns)

    monkeypatch.setattr(QueueIntake, "_take_in", take_in_and_note)
    first = await parts.queue()
    await first.close()
    await parts.wire.publish_all((tenant, job(id=f"n{n}")) for n in range(100))
    await parts.wire.client.flush()
    others = asyncio.create_task(take_turns())
    await parts.queue()
    others.cancel()
    assert len(taken_at) == 100
    assert len(set(taken_at)) == 100, "each in a turn of its own"
