"""Workers that fall silent, come back, or take every job down with them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import pytest_asyncio

from loadtest.faults.calm import Calm, run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog
from loadtest.faults.process import Process, until
from loadtest.faults.storm import Storm

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
LONG = 900


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet(open_fleet: OpenFleet) -> AsyncIterator[Fleet]:
    """A queue and two workers."""
    async with open_fleet() as fleet:
        fleet.start_queue()
        fleet.start_worker("w1")
        fleet.start_worker("w2")
        await fleet.has_workers("w1", "w2")
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def calm(fleet: Fleet) -> Calm:
    return await run_calm(fleet)


async def long_job(fleet: Fleet, calm: Calm, tenant: str, job_id: str = "a1") -> Process:
    """One that runs now; returns its worker."""
    await fleet.logs.publish(tenant, calm.job("seeded", job_id, max_tokens=LONG))
    await fleet.logs.has_tokens(tenant, job_id)
    return fleet.processes[worker_of(fleet.logs.of(tenant, job_id))]


def worker_of(log: JobLog) -> str:
    assert log.worker is not None
    return log.worker


def check_whole(log: JobLog, calm: Calm) -> None:
    assert (len(log.token_ids), log.num_gaps, log.num_overlaps) == (LONG, 0, 0)
    begun = calm.logs["seeded"].token_ids
    assert log.token_ids[: len(begun)] == begun


async def test_a_worker_that_sleeps_past_its_lease_writes_nothing_when_it_wakes(
    fleet: Fleet, calm: Calm, tenant: str
) -> None:
    sleeper = await long_job(fleet, calm, tenant)
    sleeper.stop()
    await fleet.logs.until(lambda: len(fleet.logs.of(tenant, "a1").workers) == 2, 60.0, "another attempt")
    sleeper.resume()
    log = await fleet.logs.ended(tenant, "a1")
    check_whole(log, calm)
    assert len(set(log.workers)) == 2
    await until(lambda: "dropped" in sleeper.said, what="the sleeper to find out")
    await fleet.has_workers("w1", "w2")
    assert log.records == fleet.logs.of(tenant, "a1").records, "nothing follows the end"


async def test_workers_that_sleep_and_wake_under_load_repeat_nothing(fleet: Fleet, calm: Calm, tenant: str) -> None:
    names = iter(["w1", "w2"] * 2)

    async def strike() -> None:
        sleeper = fleet.processes[next(names)]
        sleeper.stop()
        try:
            await until(lambda: is_lost(), what="the lease to end")
        finally:
            sleeper.resume()

    async def is_lost() -> bool:
        return len([worker for worker in await fleet.workers() if worker.is_connected]) < 2

    assert await Storm(fleet, calm, tenant, strike).run(num_strikes=4) == []


async def test_a_worker_that_comes_back_under_its_old_name_is_another_one(
    fleet: Fleet, calm: Calm, tenant: str
) -> None:
    """Like the pod of a stateful set: it must not be taken for the one whose jobs are still leased."""
    fleet.processes["w2"].kill()
    worker = await long_job(fleet, calm, tenant)
    assert worker is fleet.processes["w1"]
    worker.kill()
    await worker.ended()
    fleet.start_worker("w1")
    log = await fleet.logs.ended(tenant, "a1")
    check_whole(log, calm)
    assert log.workers == ["w1", "w1"]
    assert [record["number"] for record in log.of_kind("attempt")] == [1, 2]
    fleet.start_worker("w2")
    await fleet.has_workers("w1", "w2")


async def test_an_engine_that_hangs_in_a_step_costs_its_jobs_no_token(open_fleet: OpenFleet, tenant: str) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue()
        worker = fleet.start_worker("w1", roles={"step_timeout_seconds": 1.0})
        await fleet.has_workers("w1")
        calm = await run_calm(fleet)
        await long_job(fleet, calm, tenant)
        assert len(fleet.signal_engine("w1", signal.SIGSTOP)) == 1
        check_whole(await fleet.logs.ended(tenant, "a1"), calm)
        assert worker.is_running


async def test_a_job_that_kills_its_workers_is_run_alone_then_buried_and_can_be_queued_again(
    open_fleet: OpenFleet, tenant: str
) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue(lease_terms={"lease_seconds": 0.5, "max_attempts": 3, "max_shared_attempts": 2})
        fleet.start_worker("w1", roles={"max_restart_seconds": 0.05})
        await fleet.has_workers("w1")
        calm = await run_calm(fleet)
        await fleet.logs.publish(tenant, calm.job("greedy", "poison", max_tokens=LONG))
        for number in (1, 2, 3):
            await fleet.logs.until(
                lambda n=number: has_begun(fleet.logs.of(tenant, "poison"), n), 60.0, f"try {number}"
            )
            if number == 3:
                await fleet.logs.publish(tenant, calm.job("greedy", "neighbour"))
                assert fleet.logs.of(tenant, "neighbour").records == []
            fleet.signal_engine("w1", signal.SIGKILL)
        log = await fleet.logs.ended(tenant, "poison")
        assert (log.end["finish_reason"], log.end["error"]["code"]) == ("error", "attempts_exhausted")
        assert log.end["usage"]["completion_tokens"] == len(log.token_ids) > 0
        neighbour = await fleet.logs.ended(tenant, "neighbour")
        assert len(neighbour.workers) == 1, "it was kept away from the suspect"
        await look_at_the_dead(fleet, tenant)


async def look_at_the_dead(fleet: Fleet, tenant: str) -> None:
    """As a person does."""
    listed = [json.loads(line) for line in (await headway(fleet, "dead", "list", "--json")).splitlines()]
    assert [(dead["tenant"], dead["id"], dead["num_attempts"]) for dead in listed] == [(tenant, "poison", 3)]
    shown = json.loads(await headway(fleet, "dead", "show", f"{tenant}/poison"))
    assert (shown["reason"], shown["payload"]["max_tokens"]) == ("attempts_exhausted", LONG)
    said = await headway(fleet, "dead", "requeue", f"{tenant}/poison")
    again = said.strip().rpartition("/")[2]
    log = await fleet.logs.ended(tenant, again)
    assert (log.end["finish_reason"], len(log.token_ids)) == ("length", LONG)


def has_begun(log: JobLog, attempt: int) -> bool:
    return len(log.workers) == attempt and log.records[-1]["kind"] == "tokens"


async def headway(fleet: Fleet, *arguments: str) -> str:
    """What the command prints."""
    log_file = fleet.folder / f"{'-'.join(arguments[:2])}.out"
    process = Process([sys.executable, "-m", "headway", *arguments, "--nats-url", fleet.nats.url], log_file)
    assert await process.ended() == 0, process.said
    return process.said
