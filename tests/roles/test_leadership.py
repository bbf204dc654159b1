"""One process of the queue leads, the others stand by: how they change places."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from nats.js.errors import NotFoundError

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.joblog import LogState
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.state import StateStore
from headway.broker.streams import JOBS, STATE_BUCKET, ensure_streams
from headway.core.job import JobKey
from headway.core.records import Attempt, GrantToken
from headway.lease.health import Probe

pytestmark = pytest.mark.asyncio(loop_scope="session")
Eventually = Callable[..., Awaitable[None]]

FOR_EVER = {"election_lease_seconds": 3600.0, "election_renew_seconds": 0.2}
"""A lock that is not released stays held until the test is over."""


@asynccontextmanager
async def operator(parts: Any) -> AsyncIterator[Connection]:
    """Somebody who looks into NATS by hand."""
    async with await connect(BrokerConfig(nats_url=parts.nats.url), "operator", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, BrokerConfig())
        yield connection


async def second_queue(parts: Any, **groups: Any) -> Any:
    """At an address of its own."""
    parts.lease_port = 0
    return await parts.queue(**groups)


async def test_a_second_queue_stands_by_and_is_ready(parts: Any) -> None:
    first = await parts.queue()
    second = await second_queue(parts)
    assert (first.is_leading, second.is_leading) == (True, False)
    assert first.epoch == 1
    assert second.health.is_ok(Probe.READINESS)
    assert second.health.is_ok(Probe.STARTUP)


async def test_a_worker_that_asks_the_standby_is_sent_to_the_leader(parts: Any, tenant: str) -> None:
    first = await parts.queue()
    second = await second_queue(parts)
    await parts.worker(lease={"lease_address": second.server.address})
    assert [worker.is_connected for worker in first.status().workers] == [True]
    await parts.wire.publish(tenant, {"id": "a1", "prompt": "Hello", "max_tokens": 4, "ignore_eos": True})
    assert (await parts.wire.ended(tenant, "a1")).end["finish_reason"] == "length"


async def test_when_the_leader_is_closed_the_standby_leads_without_waiting(
    parts: Any, tenant: str, eventually: Eventually
) -> None:
    first = await parts.queue(election=FOR_EVER)
    second = await second_queue(parts, election=FOR_EVER)
    await parts.wire.publish_all((tenant, {"id": f"n{n}", "prompt": "Hello"}) for n in range(50))
    await first.close()
    await eventually(lambda: second.is_leading, seconds=60)
    assert second.epoch == 2
    await eventually(lambda: second.status().models[0].num_waiting_jobs == 50)


async def test_a_standby_is_closed_without_a_word_to_the_leader(parts: Any) -> None:
    first = await parts.queue(election=FOR_EVER)
    await (await second_queue(parts, election=FOR_EVER)).close()
    assert first.is_leading
    assert first.epoch == 1


async def test_a_leader_whose_consumer_was_deleted_takes_over_anew(parts: Any, eventually: Eventually) -> None:
    only = await parts.queue()
    async with operator(parts) as connection:
        await connection.js.delete_consumer(JOBS, "queue-1")
        await eventually(lambda: only.is_leading and only.epoch == 2, seconds=60)
        assert [info.name for info in await connection.js.consumers_info(JOBS)] == ["queue-2"]


async def test_one_that_cannot_have_the_consumer_says_why_and_leaves_the_lock_to_others(
    parts: Any, eventually: Eventually
) -> None:
    probes: list[Any] = []
    async with operator(parts) as connection:
        await connection.js.add_consumer(JOBS, durable_name="curious")
        starting = asyncio.create_task(parts.queue(on_probes=probes.append, election=FOR_EVER))
        await eventually(lambda: bool(probes) and "curious" in probes[0].answers[Probe.READINESS].reason, seconds=60)
        bucket = await connection.js.key_value(STATE_BUCKET)

        async def is_free() -> bool:
            return json.loads((await bucket.get("leader")).value or b"{}")["holder"] == ""

        await eventually(is_free)
        await connection.js.delete_consumer(JOBS, "curious")
        queue = await starting
    assert queue.is_leading
    assert queue.health.is_ok(Probe.READINESS)


async def test_a_standby_whose_leader_falls_silent_says_that_nobody_leads_and_then_leads(
    parts: Any, eventually: Eventually
) -> None:
    ghost = {"version": 1, "holder": "ghost", "address": "127.0.0.1:1", "lease_seconds": 9.0}
    async with operator(parts) as connection:
        await (await connection.js.key_value(STATE_BUCKET)).put("leader", json.dumps(ghost).encode())
    standby = await parts.queue()
    assert standby.health.is_ok(Probe.READINESS)
    await eventually(lambda: "no queue process leads" in standby.health.answers[Probe.READINESS].reason)
    assert not standby.is_leading
    await eventually(lambda: standby.is_leading)


async def test_a_leader_that_steps_down_lets_its_workers_go_and_has_them_again(
    parts: Any, tenant: str, eventually: Eventually
) -> None:
    only = await parts.queue()
    await parts.worker()
    await parts.wire.publish(tenant, {"id": "a1", "prompt": "Hello", "max_tokens": 300, "ignore_eos": True})
    await parts.wire.has_tokens(tenant, "a1")
    async with operator(parts) as connection:
        await connection.js.delete_consumer(JOBS, "queue-1")
    log = await parts.wire.ended(tenant, "a1")
    assert log.kinds == ["attempt", "tokens", "end"], "it was adopted, not begun again"
    await eventually(lambda: only.is_leading and only.epoch == 2, seconds=60)

    async def is_settled() -> bool:
        return await parts.wire.num_jobs() == 0

    await eventually(is_settled)


async def test_a_queue_whose_epochs_were_lost_leads_above_all_that_workers_have_heard_of(
    parts: Any, tenant: str, eventually: Eventually
) -> None:
    """Bucket and consumer are gone at once, so that epochs begin anew; workers and logs have not forgotten."""
    only = await parts.queue()
    async with operator(parts) as connection:
        await connection.js.delete_consumer(JOBS, "queue-1")
        await eventually(lambda: only.is_leading and only.epoch == 2, seconds=60)
        await parts.worker()
        await parts.wire.publish(tenant, {"id": "a1", "prompt": "Hello", "max_tokens": 900, "ignore_eos": True})
        await parts.wire.has_tokens(tenant, "a1")
        await connection.js.delete_key_value(STATE_BUCKET)
        with suppress(NotFoundError):
            await connection.js.delete_consumer(JOBS, "queue-2")
    await eventually(lambda: only.is_leading and only.epoch > 2, seconds=60)
    log = await parts.wire.ended(tenant, "a1")
    assert log.kinds == ["attempt", "tokens", "end"], "it was adopted, not begun again"
    assert (await parts.wire.run(tenant, "a2")).end["finish_reason"] == "length"


async def test_a_queue_gives_way_to_an_epoch_that_only_a_log_remembers(
    parts: Any, tenant: str, eventually: Eventually
) -> None:
    """Everything was lost but the results: what stands there was granted by a leader that nobody knows any more."""
    only = await parts.queue()
    async with operator(parts) as connection:
        writer = LogWriter(JobLogs(connection), LogState(JobKey(tenant, "a1")), Pace())
        job = json.dumps({"id": "a1", "prompt": "Hello", "max_tokens": 4, "ignore_eos": True}).encode()
        await writer.attempt(Attempt(0, GrantToken(7, 1), "lost", hashlib.sha256(job).hexdigest()))
    await parts.wire.publish(tenant, job)
    await parts.worker()
    assert (await parts.wire.ended(tenant, "a1")).end["finish_reason"] == "length"
    await eventually(lambda: only.is_leading and only.epoch > 7, seconds=60)


@pytest.mark.parametrize("payload", [b'{"id":"a1","prompt":"Hello","deadline_seconds":0.001}', b'{"id":"a1"}'])
async def test_a_leader_ends_no_job_once_a_higher_epoch_was_given_out(
    parts: Any, tenant: str, eventually: Eventually, payload: bytes
) -> None:
    """A job that has expired, or is none; its consumer still is there, as it is for a moment in every takeover."""
    only = await parts.queue()
    async with operator(parts) as connection:
        await StateStore(connection.js).raise_epoch()
        await parts.wire.publish(tenant, payload)
        await eventually(lambda: only.is_leading and only.epoch == 3, seconds=60)
        assert len((await parts.wire.ended(tenant, "a1")).of_kind("end")) == 1
