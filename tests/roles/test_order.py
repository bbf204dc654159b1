"""Which job runs next, seen from outside: the order of the attempts on a worker that runs one job at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def parts(open_parts: Callable[[], Any]) -> AsyncIterator[Any]:
    """With one worker, which waits for the queue that each test starts."""
    async with open_parts() as parts:
        queue = await parts.queue()
        await parts.worker(scheduler={"max_num_seqs": 1}, lease={"prefetch": 0})
        await queue.close()
        yield parts


async def attempts(parts: Any, keys: list[tuple[str, str]], **queue_settings: Any) -> list[tuple[str, str]]:
    """Of jobs that all wait when the queue starts, in the order in which they ran."""
    queue = await parts.queue(queue=queue_settings)
    for tenant, job_id in keys:
        await parts.wire.ended(tenant, job_id)
    await queue.close()
    return [key for key in parts.wire.attempts if key in keys]


async def test_fifo_runs_jobs_in_the_order_in_which_they_came(parts: Any, tenant: str, job: Job) -> None:
    keys = [(f"{tenant}-{number % 2}", f"n{number}") for number in range(10)]
    for number, (name, job_id) in enumerate(keys):
        await parts.wire.publish(name, job(id=job_id, max_tokens=1 + 7 * number % 10))
    assert await attempts(parts, keys, policy="fifo") == keys


async def test_sjf_runs_short_jobs_first(parts: Any, tenant: str, job: Job) -> None:
    lengths = [40, 5, 30, 10, 20]
    keys = [(tenant, f"n{length}") for length in lengths]
    for length in lengths:
        await parts.wire.publish(tenant, job(id=f"n{length}", max_tokens=length, expected_tokens=length))
    assert await attempts(parts, keys, policy="sjf") == [(tenant, f"n{length}") for length in sorted(lengths)]


async def test_weighted_fair_gives_backlogged_tenants_tokens_by_their_weights(
    parts: Any, tenant: str, job: Job
) -> None:
    light, heavy = f"{tenant}-light", f"{tenant}-heavy"
    keys = [(name, f"n{number}") for name in (light, heavy) for number in range(24)]
    for name, job_id in keys:  # all of one tenant came first
        await parts.wire.publish(name, job(id=job_id, max_tokens=8))
    order = await attempts(parts, keys, policy="weighted-fair", tenant_weights={light: 1.0, heavy: 2.0})
    both_backlogged = [name for name, _ in order[:30]]
    assert both_backlogged.count(heavy) == pytest.approx(20, abs=2)
    assert [key for key in order if key[0] == light] == keys[:24], "in order within a tenant"
