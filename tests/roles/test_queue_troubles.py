"""A leader that cannot store what it has to say about jobs that no worker runs: it says so, and goes on afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from nats.js.errors import APIError

from headway.lease.health import Probe

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]

RESULTS, DEAD = "HEADWAY_RESULTS", "HEADWAY_DEAD"
FILLER = "headway.log.filler.x"


@pytest_asyncio.fixture(loop_scope="session")
async def queue(parts: Any) -> AsyncIterator[Any]:
    """One that leads, without any worker; its stream of results is soon full."""
    return await parts.queue(broker={"max_result_bytes": 2**20})


async def fill(parts: Any) -> None:
    """Until the stream of results takes not even a small record more."""
    for size in (2**16, 2**10, 16):
        with suppress(APIError):
            while True:
                await parts.wire.client.jetstream().publish(FILLER, b"x" * size)


def reason(queue: Any) -> str:
    """Why it is not ready."""
    return queue.health.answers[Probe.READINESS].reason


async def test_a_leader_whose_ends_are_refused_is_unready_and_says_why(
    parts: Any, queue: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    await fill(parts)
    await parts.wire.publish(tenant, job(id="a1", deadline_seconds=0.01))
    await eventually(lambda: "results: HEADWAY_RESULTS refuses records: maximum bytes" in reason(queue))
    assert queue.health.is_ok(Probe.LIVENESS)
    assert queue.is_leading
    await parts.wire.client.jetstream().purge_stream(RESULTS, subject=FILLER)
    assert (await parts.wire.ended(tenant, "a1")).end["finish_reason"] == "expired"
    await eventually(lambda: queue.health.is_ok(Probe.READINESS))


async def test_a_leader_makes_the_stream_of_results_anew(
    parts: Any, queue: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    await parts.wire.client.jetstream().delete_stream(RESULTS)
    await parts.wire.publish(tenant, job(id="a1", deadline_seconds=0.01))
    assert (await parts.wire.ended(tenant, "a1")).end["finish_reason"] == "expired"
    await eventually(lambda: queue.health.is_ok(Probe.READINESS))


async def test_a_leader_makes_the_stream_of_the_dead_anew(
    parts: Any, queue: Any, tenant: str, eventually: Eventually
) -> None:
    await parts.wire.client.jetstream().delete_stream(DEAD)
    sequence = await parts.wire.publish(tenant, b"no job at all")
    await parts.wire.ended(tenant, f"j{sequence}")
    assert await parts.wire.dead_reasons(tenant, f"j{sequence}")
    await eventually(lambda: queue.health.is_ok(Probe.READINESS))
