"""Lines between the parts that break, crawl, or swallow everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from loadtest.faults.calm import Calm, run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.proxy import Proxy, serving
from loadtest.faults.storm import Storm

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
NUM_STRIKES = 3
BLACK_HOLE_SECONDS = 1.5
"""How long nothing comes through: longer than a lease."""
CRAWL_SECONDS = 0.02
"""Of delay for every piece of data."""


@dataclass(frozen=True)
class Lines:
    """A fleet with a proxy in each of its lines."""

    fleet: Fleet
    calm: Calm
    worker_to_nats: Proxy
    worker_to_queue: Proxy
    client_to_nats: Proxy

    def by_name(self, name: str) -> Proxy:
        return getattr(self, name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lines(open_fleet: OpenFleet) -> AsyncIterator[Lines]:
    """Of two workers one has bad lines, so that the other can take over."""
    async with (
        open_fleet() as fleet,
        serving(Proxy(fleet.nats.url)) as worker_to_nats,
        serving(Proxy(f"tcp://{fleet.lease_address}")) as worker_to_queue,
        serving(Proxy(fleet.nats.url)) as client_to_nats,
    ):
        fleet.start_queue()
        lease = {"lease_address": worker_to_queue.address}
        fleet.start_worker("w1", broker={"nats_url": worker_to_nats.url}, lease=lease)
        fleet.start_worker("w2")
        await fleet.has_workers("w1", "w2")
        yield Lines(fleet, await run_calm(fleet), worker_to_nats, worker_to_queue, client_to_nats)


async def cut(line: Proxy) -> None:
    line.cut()


async def cut_in_the_middle(line: Proxy) -> None:
    line.cut_after(200)


async def swallow(line: Proxy) -> None:
    line.hold()
    await asyncio.sleep(BLACK_HOLE_SECONDS)
    line.release()


async def crawl(line: Proxy) -> None:
    line.delay_seconds = CRAWL_SECONDS


@pytest.mark.parametrize("name", ["worker_to_nats", "worker_to_queue", "client_to_nats"])
@pytest.mark.parametrize("way", [cut, cut_in_the_middle, swallow, crawl])
async def test_a_bad_line_loses_and_repeats_nothing(
    lines: Lines, tenant: str, name: str, way: Callable[[Proxy], Awaitable[None]]
) -> None:
    line = lines.by_name(name)
    storm = Storm(lines.fleet, lines.calm, tenant, lambda: way(line), lines.client_to_nats.url)
    try:
        assert await storm.run(NUM_STRIKES) == []
    finally:
        line.delay_seconds = 0.0


async def test_a_worker_that_loses_its_leader_goes_on_and_delivers(lines: Lines, tenant: str) -> None:
    """For less than a lease: the job stays with it, in one attempt."""
    fleet = lines.fleet
    await fleet.logs.publish(tenant, lines.calm.job("greedy", "a1", max_tokens=900))
    await fleet.logs.has_tokens(tenant, "a1")
    lines.worker_to_queue.cut()
    log = await fleet.logs.ended(tenant, "a1")
    assert (len(log.token_ids), len(log.workers), log.num_gaps, log.num_overlaps) == (900, 1, 0, 0)


async def test_the_queue_that_is_killed_again_and_again_loses_and_repeats_nothing(lines: Lines, tenant: str) -> None:
    fleet = lines.fleet

    async def strike() -> None:
        fleet.processes["queue"].kill()
        await fleet.processes["queue"].ended()
        fleet.start_queue()

    assert await Storm(fleet, lines.calm, tenant, strike).run(NUM_STRIKES) == []
