"""Deadlines, cancels and a full queue where they meet something else: a race, a change of hands, a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.broker.client import Client
from headway.broker.errors import Busy
from headway.core.lease_actions import CancelOutcome
from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]
NUM_RACES = 60


async def test_a_cancel_that_races_with_the_end_leaves_one_end_and_is_answered_with_it(
    local: LocalRole, wire: Any, tenant: str
) -> None:
    """Of jobs of two tokens, asked for at moments that are spread over their lives; most of them win, some lose."""
    outcomes = set()
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        for number in range(NUM_RACES):
            stream = await client.submit("Hello", max_tokens=2, temperature=0.0, ignore_eos=True)
            for _ in range(number * 20):
                await asyncio.sleep(0)
            answer, chunks = await asyncio.gather(client.cancel(stream.id), _chunks(stream))
            outcomes.add(answer.outcome)
            ends = [chunk.finish_reason for chunk in chunks if chunk.finish_reason is not None]
            assert ends == [answer.finish_reason]
            assert chunks[-1].finish_reason is not None
            assert (await wire.ended(tenant, stream.id)).end["finish_reason"] == answer.finish_reason
    assert CancelOutcome.CANCELLED in outcomes


async def _chunks(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


async def test_a_job_that_expires_while_nobody_leads_is_told_by_the_next_queue_and_never_granted(
    parts: Any, tenant: str, job: Job
) -> None:
    queue = await parts.queue()
    await queue.close()
    await parts.wire.publish(tenant, job(id="late", deadline_seconds=0.01))
    await parts.wire.publish(tenant, job(id="patient", deadline_seconds=600))
    await parts.queue()
    await parts.worker()
    log = await parts.wire.ended(tenant, "late")
    assert (log.kinds, log.end["finish_reason"]) == (["end"], "expired")
    assert (await parts.wire.ended(tenant, "patient")).end["finish_reason"] == "length"


async def test_a_job_whose_worker_went_keeps_its_deadline(parts: Any, tenant: str, job: Job) -> None:
    """It goes back with what it has, and nobody takes it up again in time."""
    await parts.queue()
    worker = await parts.worker(roles={"drain_seconds": 0.0})
    await parts.wire.publish(tenant, job(id="a1", max_tokens=900, deadline_seconds=3.0))
    await parts.wire.has_tokens(tenant, "a1")
    await worker.close()
    log = await parts.wire.ended(tenant, "a1")
    assert (log.kinds, log.end["finish_reason"]) == (["attempt", "tokens", "released", "end"], "expired")
    assert log.end["usage"]["completion_tokens"] == len(log.token_ids) > 0


async def test_a_cancelled_job_whose_worker_hands_it_back_ends_once(parts: Any, tenant: str, job: Job) -> None:
    await parts.queue()
    worker = await parts.worker(roles={"drain_seconds": 0.0})
    await parts.wire.publish(tenant, job(id="a1", max_tokens=900))
    await parts.wire.has_tokens(tenant, "a1")
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        answer, _ = await asyncio.gather(client.cancel("a1"), worker.close())
    log = await parts.wire.ended(tenant, "a1")
    assert (answer.outcome, log.end["finish_reason"]) == (CancelOutcome.CANCELLED, "cancelled")
    assert len(log.of_kind("end")) == 1


async def test_a_queue_that_is_full_of_bytes_refuses_a_large_job_and_takes_a_small_one(parts: Any, tenant: str) -> None:
    limit = 20_000
    await parts.queue(broker={"max_waiting_bytes": limit, "max_job_bytes": limit})
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        await client.submit("x" * (limit // 2))
        with pytest.raises(Busy) as caught:
            await client.submit("x" * (limit // 2))
        assert caught.value.retry_after_seconds > 0
        await client.submit("Hello")
    assert await parts.wire.num_jobs() == 2


async def test_a_tenant_with_too_many_bytes_in_the_queue_is_answered_busy_and_others_are_taken(
    parts: Any, tenant: str, job: Job
) -> None:
    await parts.queue(broker={"max_waiting_bytes_per_tenant": 1000, "max_job_bytes": 1000})
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        await client.submit("x" * 500, id="first", max_tokens=4)
        with pytest.raises(Busy, match="bytes in the queue") as caught:
            await client.submit("x" * 500, id="second", max_tokens=4).result(timeout_seconds=60)
        assert caught.value.retry_after_seconds > 0
        await client.submit("x" * 500, id="first", max_tokens=4)
        await client.submit("Hello", id="small", max_tokens=4)
    await parts.wire.publish(f"{tenant}-2", job(id="a1", prompt="x" * 500))
    log = await parts.wire.ended(tenant, "second")
    assert (log.kinds, log.error) == (["end"], ("busy", None))
    await parts.worker()
    for name, job_id in ((tenant, "first"), (tenant, "small"), (f"{tenant}-2", "a1")):
        assert (await parts.wire.ended(name, job_id)).end["finish_reason"] in ("length", "stop")
    assert await parts.wire.dead_reasons(tenant, "first") == [], "a repeated job is not refused for its bytes"
    assert (await parts.wire.run(tenant, "third", prompt="x" * 500)).end["finish_reason"] == "length"


async def test_what_a_former_leader_has_taken_in_is_not_refused_by_the_next(parts: Any, tenant: str, job: Job) -> None:
    """Even if it is more than the next one would take."""
    first = await parts.queue()
    for number in range(4):
        await parts.wire.publish(tenant, job(id=f"n{number}", prompt="x" * 300))
    await first.close()
    await parts.queue(broker={"max_waiting_bytes_per_tenant": 1000, "max_job_bytes": 1000})
    await parts.worker()
    ends = [(await parts.wire.ended(tenant, f"n{number}")).end["finish_reason"] for number in range(4)]
    assert ends == ["length"] * 4


async def test_jobs_that_were_refused_while_the_queue_was_full_are_taken_when_it_is_not(
    parts: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    """Nobody is refused for good: every job of many more than fit is answered, each once."""
    await parts.queue(broker={"max_waiting_jobs_per_tenant": 2})
    await parts.worker()
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        streams = [client.submit("Hello", max_tokens=3, ignore_eos=True) for _ in range(12)]
        results = await asyncio.gather(*(_offered(stream) for stream in streams))
    assert [len(result.token_ids) for result in results] == [3] * 12
    await eventually(lambda: _is_empty(parts.wire))


async def _offered(stream: Any) -> Any:
    while True:
        try:
            return await stream.result()
        except Busy as busy:
            await asyncio.sleep(busy.retry_after_seconds / 20)


async def _is_empty(wire: Any) -> bool:
    return await wire.num_jobs() == 0
