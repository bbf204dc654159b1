"""The same job again: whenever it comes, it runs once, and everybody reads the one log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.errors import Conflict
from headway.broker.job_publish import publication, publish_job
from headway.core.job import FinishReason
from headway.core.lease_actions import CancelOutcome
from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]
FIELDS = {"max_tokens": 150, "temperature": 0.0, "ignore_eos": True}


async def is_settled(wire: Any) -> bool:
    return await wire.num_jobs() == 0


async def test_a_program_that_submits_anew_while_its_job_runs_reads_the_one_run_from_its_beginning(
    local: LocalRole, wire: Any, tenant: str, eventually: Eventually
) -> None:
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        first = await client.submit("Hello", id="a1", **FIELDS)
        await wire.has_tokens(tenant, "a1")
        again = client.submit("Hello", id="a1", **FIELDS)
        results = await asyncio.gather(first.result(), again.result())
    assert results[0].token_ids == results[1].token_ids
    assert results[0].text == results[1].text
    assert len(results[0].token_ids) == FIELDS["max_tokens"]
    await eventually(lambda: is_settled(wire))
    assert wire.log(tenant, "a1").kinds == ["attempt", "tokens", "end"]


async def test_a_program_that_submits_anew_after_the_run_reads_the_same(
    local: LocalRole, wire: Any, tenant: str, eventually: Eventually
) -> None:
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        results = [await client.submit("Hello", id="a1", **FIELDS).result() for _ in range(3)]
    assert results[1:] == results[:1] * 2
    await eventually(lambda: is_settled(wire))
    assert wire.log(tenant, "a1").kinds == ["attempt", "tokens", "end"]


async def test_another_payload_under_the_id_is_a_conflict_for_its_client_and_nothing_for_the_first(
    local: LocalRole, wire: Any, tenant: str, eventually: Eventually
) -> None:
    async with Client.connect(local.nats.url, tenant=tenant) as client:
        first = await client.submit("Hello", id="a1", **FIELDS)
        with pytest.raises(Conflict):
            await client.submit("Another", id="a1", **FIELDS).result()
        result = await first.result()
    assert (result.finish_reason, len(result.token_ids)) == (FinishReason.LENGTH, FIELDS["max_tokens"])

    async def is_buried() -> bool:
        return len(await wire.dead_reasons(tenant, "a1")) == 1 and await is_settled(wire)

    await eventually(is_buried)


async def test_a_retry_inside_the_brokers_duplicate_window_and_one_outside_are_the_same_job(
    parts: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    """The window is a tenth of a second here: then the broker stores the message again, and the leader knows it."""
    await parts.queue()
    js = parts.wire.client.jetstream()
    stream = (await js.stream_info("HEADWAY_JOBS")).config
    stream.duplicate_window = 0.1
    await js.update_stream(stream)
    sent = publication("default", tenant, json.dumps(job(id="a1")).encode())
    async with await connect(BrokerConfig(nats_url=parts.nats.url), "client", timeout_seconds=10) as connection:
        first = await publish_job(connection, sent, 5.0)

        async def is_stored_again() -> bool:
            return await publish_job(connection, sent, 5.0) != first

        await eventually(is_stored_again)
    await parts.worker()
    await parts.wire.ended(tenant, "a1")
    await eventually(lambda: is_settled(parts.wire))
    assert parts.wire.log(tenant, "a1").kinds == ["attempt", "tokens", "end"]
    assert await parts.wire.dead_reasons(tenant, "a1") == []


async def test_of_two_copies_that_a_new_queue_finds_in_the_stream_one_runs(
    parts: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    queue = await parts.queue()
    await queue.close()
    for _ in range(2):
        await parts.wire.publish(tenant, job(id="a1"))
    await parts.wire.publish(tenant, job(id="a1", prompt="Another"))
    await parts.queue()
    await parts.worker()
    await parts.wire.ended(tenant, "a1")
    await eventually(lambda: is_settled(parts.wire))
    assert parts.wire.log(tenant, "a1").kinds == ["attempt", "tokens", "end"]
    assert await parts.wire.dead_reasons(tenant, "a1") == ["conflict"]


@pytest.mark.parametrize("way", ["cancelled", "expired"])
async def test_a_job_that_ended_before_it_ran_does_not_run_when_it_comes_again(
    parts: Any, tenant: str, job: Job, eventually: Eventually, way: str
) -> None:
    """Its log has no attempt: whose it is stands with its end."""
    await parts.queue()
    payload = json.dumps(job(id="a1", **({"deadline_seconds": 0.01} if way == "expired" else {}))).encode()
    async with Client.connect(parts.nats.url, tenant=tenant) as client:
        await parts.wire.publish(tenant, payload)
        if way == "cancelled":
            assert (await client.cancel("a1")).outcome is CancelOutcome.CANCELLED
        await parts.wire.ended(tenant, "a1")
        await parts.wire.publish(tenant, payload)
        await parts.wire.publish(tenant, job(id="a1", prompt="Another"))
        await parts.worker()
        await eventually(lambda: is_settled(parts.wire))
        assert (await client.result("a1", 20)).finish_reason == way
    assert parts.wire.log(tenant, "a1").kinds == ["end"]
    assert await parts.wire.dead_reasons(tenant, "a1") == ["conflict"]
