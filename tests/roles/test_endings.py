"""Jobs that end before their time: cancelled or too late, waiting or running."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]
LONG = 900


async def cancel(wire: Any, tenant: str, job_id: str) -> dict[str, Any]:
    """As a person would, with a plain request."""
    reply = await wire.client.request(f"headway.cancel.{tenant}.{job_id}", b"", timeout=20)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


async def keep_busy(wire: Any, tenant: str, job: Job) -> list[str]:
    """Fills every slot of the worker, and its prefetch, with long jobs."""
    ids = [f"busy{number}" for number in range(6)]
    for job_id in ids:
        await wire.publish(tenant, job(id=job_id, max_tokens=LONG))
    for job_id in ids[:4]:
        await wire.has_tokens(tenant, job_id)
    return ids


async def stop(wire: Any, tenant: str, ids: list[str]) -> None:
    await asyncio.gather(*(cancel(wire, tenant, job_id) for job_id in ids))


async def test_a_running_job_is_cancelled_and_frees_its_pages(
    local: LocalRole, wire: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    await wire.publish(tenant, job(id="a1", max_tokens=LONG))
    await wire.has_tokens(tenant, "a1")
    assert (await cancel(wire, tenant, "a1"))["outcome"] == "cancelled"
    log = await wire.ended(tenant, "a1")
    assert log.end["finish_reason"] == "cancelled"
    assert 0 < len(log.token_ids) < LONG
    await eventually(lambda: (stats := local.worker.stats) is not None and stats.pages.num_used == 0)

    async def settled() -> bool:
        return await wire.num_jobs() == 0

    await eventually(settled)


async def test_a_waiting_job_is_cancelled_and_never_runs(wire: Any, tenant: str, job: Job) -> None:
    busy = await keep_busy(wire, tenant, job)
    await wire.publish(tenant, job(id="a1"))
    assert (await cancel(wire, tenant, "a1"))["outcome"] == "cancelled"
    assert (await wire.ended(tenant, "a1")).kinds == ["end"]
    await stop(wire, tenant, busy)


async def test_a_granted_job_that_waits_in_the_engine_is_cancelled(wire: Any, tenant: str, job: Job) -> None:
    busy = await keep_busy(wire, tenant, job)
    prefetched = busy[-1]
    await wire.until(lambda: bool(wire.log(tenant, prefetched).records))
    assert (await cancel(wire, tenant, prefetched))["outcome"] == "cancelled"
    assert (await wire.ended(tenant, prefetched)).kinds == ["attempt", "end"]
    await stop(wire, tenant, busy)


async def test_a_job_cancelled_right_behind_its_grant_ends(wire: Any, tenant: str, job: Job) -> None:
    ids = [f"n{number}" for number in range(20)]
    for job_id in ids:
        await wire.publish(tenant, job(id=job_id, max_tokens=LONG))
        assert (await cancel(wire, tenant, job_id))["outcome"] == "cancelled"
    for job_id in ids:
        assert (await wire.ended(tenant, job_id)).end["finish_reason"] == "cancelled"


async def test_a_job_is_cancelled_however_soon(wire: Any, tenant: str, job: Job) -> None:
    ids = [f"n{number}" for number in range(100)]
    for job_id in ids:
        await wire.publish(tenant, job(id=job_id, max_tokens=LONG))
        assert (await cancel(wire, tenant, job_id))["outcome"] == "cancelled"
    assert {(await wire.ended(tenant, job_id)).end["finish_reason"] for job_id in ids} == {"cancelled"}


async def test_a_job_is_cancelled_though_the_queue_still_reads_those_before_it(
    wire: Any, tenant: str, job: Job
) -> None:
    ids = [f"n{number}" for number in range(300)]
    await wire.publish_all((tenant, job(id=job_id, max_tokens=2)) for job_id in ids)
    answers = await asyncio.gather(*(cancel(wire, tenant, job_id) for job_id in ids[-50:]))
    assert {answer["outcome"] for answer in answers} <= {"cancelled", "ended"}
    for job_id, answer in zip(ids[-50:], answers, strict=True):
        assert (await wire.ended(tenant, job_id)).end["finish_reason"] == answer["finish_reason"]
    for job_id in ids:
        await wire.ended(tenant, job_id)


async def test_a_faulty_job_that_is_cancelled_at_once_is_told_as_ended(wire: Any, tenant: str, job: Job) -> None:
    for number in range(20):
        await wire.publish(tenant, job(id=f"n{number}", max_tokens=-1))
        answer = await cancel(wire, tenant, f"n{number}")
        assert (answer["outcome"], answer["finish_reason"]) == ("ended", "rejected")


async def test_cancelling_what_has_ended_or_never_was_says_so(wire: Any, tenant: str) -> None:
    await wire.run(tenant, "a1")
    assert await cancel(wire, tenant, "a1") == {"outcome": "ended", "finish_reason": "length", "error": None}
    assert (await cancel(wire, tenant, "never"))["outcome"] == "not_found"
    assert len(wire.log(tenant, "a1").of_kind("end")) == 1


async def test_two_who_cancel_the_same_job_are_both_answered(wire: Any, tenant: str, job: Job) -> None:
    await wire.publish(tenant, job(id="a1", max_tokens=LONG))
    await wire.has_tokens(tenant, "a1")
    answers = await asyncio.gather(cancel(wire, tenant, "a1"), cancel(wire, tenant, "a1"))
    assert {answer["outcome"] for answer in answers} <= {"cancelled", "ended"}
    assert len((await wire.ended(tenant, "a1")).of_kind("end")) == 1


async def test_a_job_that_waits_past_its_deadline_expires_without_an_attempt(wire: Any, tenant: str, job: Job) -> None:
    busy = await keep_busy(wire, tenant, job)
    await wire.publish(tenant, job(id="a1", deadline_seconds=0.01))
    log = await wire.ended(tenant, "a1")
    assert (log.kinds, log.end["finish_reason"]) == (["end"], "expired")
    await stop(wire, tenant, busy)


async def test_a_job_that_decodes_past_its_deadline_expires_with_what_it_has(wire: Any, tenant: str, job: Job) -> None:
    await wire.publish(tenant, job(id="a1", max_tokens=LONG, deadline_seconds=0.5))
    log = await wire.ended(tenant, "a1")
    assert (log.kinds, log.end["finish_reason"]) == (["attempt", "tokens", "end"], "expired")
    assert 0 < len(log.token_ids) == log.end["usage"]["completion_tokens"] < LONG
