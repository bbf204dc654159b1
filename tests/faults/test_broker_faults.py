"""NATS goes, comes back, refuses, or forgets: work is held meanwhile and goes on afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio
from nats.js import JetStreamContext
from nats.js.errors import APIError

from headway.broker.client import Client
from headway.broker.errors import LogIncomplete
from loadtest.faults.calm import Calm, run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.process import until
from loadtest.faults.proxy import Proxy, serving
from loadtest.faults.storm import Storm

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
RESULTS = "HEADWAY_RESULTS"
AWAY_SECONDS = 8.0
"""Longer than any timeout and any lease of the fleet."""
MAX_RESULT_BYTES = 16 * 2**20
LONG = 900


@dataclass(frozen=True)
class Served:
    """A queue and a worker, each with a line of its own to NATS, and what calm jobs give."""

    fleet: Fleet
    calm: Calm
    queue_line: Proxy
    worker_line: Proxy

    @property
    def js(self) -> JetStreamContext:
        return self.fleet.logs.connection.js


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(open_fleet: OpenFleet) -> AsyncIterator[Served]:
    async with (
        open_fleet() as fleet,
        serving(Proxy(fleet.nats.url)) as queue_line,
        serving(Proxy(fleet.nats.url)) as worker_line,
    ):
        limits = {"max_result_bytes": MAX_RESULT_BYTES}
        fleet.start_queue(broker={"nats_url": queue_line.url, **limits})
        fleet.start_worker("w1", broker={"nats_url": worker_line.url, **limits})
        await fleet.has_workers("w1")
        yield Served(fleet, await run_calm(fleet), queue_line, worker_line)


async def test_a_nats_server_that_is_killed_again_and_again_costs_no_token(served: Served, tenant: str) -> None:
    async def strike() -> None:
        await served.fleet.nats.stop(kill=True)
        await served.fleet.nats.start()

    assert await Storm(served.fleet, served.calm, tenant, strike).run(num_strikes=6) == []


async def test_connections_that_break_in_the_middle_store_nothing_twice(served: Served, tenant: str) -> None:
    async with serving(Proxy(served.fleet.nats.url)) as client_line:
        lines = (served.worker_line, served.queue_line, client_line)

        async def strike() -> None:
            for line in lines:
                line.cut_after(300)

        storm = Storm(served.fleet, served.calm, tenant, strike, client_line.url)
        assert await storm.run(num_strikes=6) == []
    assert [len(log.of_kind("end")) for log in storm.logs.values()] == [1] * len(storm.kinds)


async def test_a_nats_that_is_away_for_long_is_waited_for(served: Served, tenant: str) -> None:
    fleet = served.fleet
    await fleet.logs.publish(tenant, served.calm.job("greedy", "a1", max_tokens=LONG))
    await fleet.logs.has_tokens(tenant, "a1")
    lines = (served.worker_line, served.queue_line)
    for line in lines:
        line.close()
    for name in ("queue", "w1"):
        await fleet.is_unready(name, "nats: ")
    await asyncio.sleep(AWAY_SECONDS)  # the fault itself
    for name in ("queue", "w1"):
        assert (await fleet.answers(name, "liveness")).ok
        assert not (await fleet.answers(name, "readiness")).ok
    assert not fleet.logs.of(tenant, "a1").has_ended
    for line in lines:
        line.open()
    log = await fleet.logs.ended(tenant, "a1")
    assert (len(log.token_ids), log.num_gaps, log.num_overlaps) == (LONG, 0, 0)
    for name in ("queue", "w1"):
        await fleet.is_ready(name)


async def test_a_black_hole_is_noticed_and_left(served: Served, tenant: str) -> None:
    """Nothing comes through, and no connection breaks either."""
    fleet, line = served.fleet, served.worker_line
    await fleet.logs.publish(tenant, served.calm.job("greedy", "a1", max_tokens=LONG))
    await fleet.logs.has_tokens(tenant, "a1")
    line.hold()
    await fleet.is_unready("w1", "nats")
    assert (await fleet.answers("w1", "liveness")).ok
    line.release()
    log = await fleet.logs.ended(tenant, "a1")
    assert (len(log.token_ids), log.num_gaps, log.num_overlaps) == (LONG, 0, 0)
    await fleet.is_ready("w1")


async def test_a_full_stream_holds_the_jobs_until_there_is_room(served: Served, tenant: str) -> None:
    fleet = served.fleet
    await fill(served.js, "headway.log.filler.x")
    await fleet.logs.publish(tenant, served.calm.job("greedy", "a1"))
    assert "maximum bytes exceeded" in await fleet.is_unready("w1", "results")
    assert (await fleet.answers("w1", "liveness")).ok
    assert fleet.logs.of(tenant, "a1").records == []
    await served.js.purge_stream(RESULTS, subject="headway.log.filler.x")
    log = await fleet.logs.ended(tenant, "a1")
    assert served.calm.differences("greedy", log) == []
    await fleet.is_ready("w1")


async def test_a_worker_whose_records_are_refused_asks_for_no_more_jobs(served: Served, tenant: str) -> None:
    fleet = served.fleet
    await fill(served.js, "headway.log.filler.x")
    await fleet.logs.publish(tenant, served.calm.job("greedy", "a1"))
    await fleet.is_unready("w1", "results")
    for number in range(5):
        await fleet.logs.publish(tenant, served.calm.job("greedy", f"n{number}"))

    async def all_wait() -> bool:
        status = await fleet.status()
        return status is not None and status.models[0].num_waiting_jobs == 5

    await until(all_wait, what="the queue to have all jobs and to keep them")
    assert [worker.num_held_jobs for worker in await fleet.workers()] == [1]
    await served.js.purge_stream(RESULTS, subject="headway.log.filler.x")
    for job_id in ("a1", *(f"n{number}" for number in range(5))):
        assert served.calm.differences("greedy", await fleet.logs.ended(tenant, job_id)) == []


async def test_a_stream_that_was_deleted_is_made_anew_and_jobs_still_end(served: Served, tenant: str) -> None:
    """What stood in it is gone, and who was reading it hears that instead of waiting for ever."""
    fleet = served.fleet
    async with Client.connect(fleet.nats.url, tenant=tenant) as client:
        stream = await client.submit("Hello", id="a1", max_tokens=LONG, ignore_eos=True, temperature=0)
        assert (await anext(stream)).token_ids
        await served.js.delete_stream(RESULTS)
        with pytest.raises(LogIncomplete):
            await stream.result(timeout_seconds=60)
    assert (await fleet.logs.ended(tenant, "a1")).end["finish_reason"] == "length"
    await fleet.is_ready("w1")
    assert fleet.processes["w1"].is_running
    await fleet.logs.publish(tenant, served.calm.job("greedy", "a2"))
    assert served.calm.differences("greedy", await fleet.logs.ended(tenant, "a2")) == []


async def fill(js: JetStreamContext, subject: str) -> None:
    """Until the stream takes not even a small record more."""
    for size in (2**20, 2**15, 2**10, 16):
        with suppress(APIError):
            while True:
                await js.publish(subject, json.dumps("x" * size).encode())
