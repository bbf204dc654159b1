"""The queue's leader is gone, in every way that there is, while a thousand jobs wait and some run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from headway.broker.client import Client
from headway.core.lease_actions import CancelOutcome
from headway.core.queue_config import QueueConfig, QueuePolicy
from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog
from loadtest.faults.process import until
from loadtest.faults.proxy import Proxy, serving
from loadtest.faults.queue_pair import QueuePair, start_pair

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]

NUM_WAITING = 1000
NUM_RUNNING = 8
LONG, SHORT = 400, 2
NO_HURRY = {"lease_terms": {"lease_seconds": 30.0, "grace_seconds": 30.0}}
"""What runs is not taken back, and the next leader waits for the worker: so every attempt is adopted."""


@asynccontextmanager
async def loaded_pair(fleet: Fleet, nats_url: str | None = None) -> AsyncIterator[QueuePair]:
    """All slots of the one worker are taken by long jobs, and a thousand short ones wait.

    ``nats_url``: how the leader reaches NATS.
    """
    leader = {"broker": {"nats_url": nats_url}} if nats_url else {}
    pair = await start_pair(fleet, leader=leader, **NO_HURRY)
    fleet.start_worker("w1")
    await fleet.has_workers("w1")
    for number in range(NUM_RUNNING):
        await fleet.logs.publish("acme", job(f"long{number}", LONG))
    for number in range(NUM_RUNNING):
        await fleet.logs.has_tokens("acme", f"long{number}")
    await asyncio.gather(*(fleet.logs.publish("acme", job(f"n{n}", SHORT)) for n in range(NUM_WAITING)))
    yield pair


def job(job_id: str, max_tokens: int, **fields: Any) -> dict[str, Any]:
    return {"id": job_id, "prompt": "Hello", "max_tokens": max_tokens, "ignore_eos": True, "seed": 7, **fields}


async def check_all_ended(fleet: Fleet) -> None:
    """Each once, in order, with the output that its seed gives; and nothing is left in the stream."""
    long = [await fleet.logs.ended("acme", f"long{n}", seconds=240) for n in range(NUM_RUNNING)]
    short = [await fleet.logs.ended("acme", f"n{n}", seconds=240) for n in range(NUM_WAITING)]
    for log, max_tokens in [*((log, LONG) for log in long), *((log, SHORT) for log in short)]:
        check_whole(log, max_tokens)
    assert len({tuple(log.token_ids) for log in long}) == 1
    assert len({tuple(log.token_ids) for log in short}) == 1
    assert {len(log.workers) for log in long} == {1}, "what ran was adopted, not begun again"
    await until(lambda: is_empty(fleet), what="every job to be acknowledged")


async def is_empty(fleet: Fleet) -> bool:
    return await fleet.logs.num_jobs() == 0


def check_whole(log: JobLog, max_tokens: int) -> None:
    assert (log.num_gaps, log.num_overlaps, len(log.of_kind("end"))) == (0, 0, 1), log.records
    assert (log.end["finish_reason"], len(log.token_ids)) == ("length", max_tokens)


async def check_one_leads(pair: QueuePair, epoch: int) -> None:
    """For many renewals on end, and whoever else there is neither answers nor has a consumer."""
    revision = (await pair.lock())["revision"]

    async def has_renewed() -> bool:
        return (await pair.lock())["revision"] >= revision + 8

    await until(has_renewed, what="eight renewals")
    status = await pair.fleet.status()
    assert status is not None
    assert status.epoch == epoch
    assert await pair.consumers() == [f"queue-{epoch}"]
    assert await pair.num_answers(20) == 20


async def test_a_leader_that_is_killed_is_followed_by_its_standby(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet, loaded_pair(fleet) as pair:
        pair.leader.kill()
        status = await pair.grants_with(epoch=2)
        assert status.models[0].num_outstanding_jobs > NUM_WAITING
        assert [worker.name for worker in status.workers] == ["w1"]
        await check_all_ended(fleet)


async def test_a_leader_that_nats_cannot_reach_any_more_stands_by_when_it_is_back(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet, serving(Proxy(fleet.nats_url)) as line, loaded_pair(fleet, line.url) as pair:
        line.hold()
        await pair.grants_with(epoch=2)
        await until(lambda: "leads no longer" in pair.leader.said, what="the old leader to notice")
        line.release()
        await until(lambda: "stands by" in pair.leader.said, what="the old leader to stand by")
        await check_one_leads(pair, epoch=2)
        await check_all_ended(fleet)


async def test_a_leader_that_was_paused_can_neither_grant_nor_acknowledge_afterwards(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet, loaded_pair(fleet) as pair:
        pair.leader.stop()
        await pair.grants_with(epoch=2)
        num_jobs = await fleet.logs.num_jobs()
        pair.leader.resume()
        await until(lambda: "stands by" in pair.leader.said, what="the old leader to stand by")
        await check_one_leads(pair, epoch=2)
        assert num_jobs > NUM_WAITING // 2
        await check_all_ended(fleet)
        assert epochs_in_order(fleet) == sorted(epochs_in_order(fleet))


def epochs_in_order(fleet: Fleet) -> list[int]:
    """Of all attempts, as the stream stored them."""
    return [record["grant"][0] for record in fleet.logs.in_order("attempt")]


async def test_a_leader_that_is_told_to_stop_makes_way_at_once(open_fleet: OpenFleet) -> None:
    patient = {"election_lease_seconds": 3600.0, "election_renew_seconds": 0.2}
    async with open_fleet() as fleet:
        pair = await start_pair(fleet, election=patient)
        pair.leader.terminate()
        await pair.grants_with(epoch=2)
        assert await pair.leader.ended() == 0


async def test_two_queues_that_are_started_again_and_again_do_not_depose_each_other(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet:
        pair = await start_pair(fleet)
        for epoch in (2, 3):
            for name, process in (("q1", pair.leader), ("q2", pair.standby)):
                await process.close()
                fleet.start_queue(name)
            pair.leader, pair.standby = fleet.processes["q1"], fleet.processes["q2"]
            await pair.grants_with(epoch)
            await check_one_leads(pair, epoch)
        assert pair.leader.is_running
        assert pair.standby.is_running


async def test_a_cancel_that_only_the_lost_leader_has_heard_is_answered_by_the_next(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet:
        pair = await start_pair(fleet)
        await fleet.logs.publish("acme", job("a1", SHORT))
        pair.leader.stop()
        async with Client.connect(fleet.nats_url, tenant="acme") as client:
            outcome = await client.cancel("a1")
        assert outcome.outcome == CancelOutcome.CANCELLED
        log = await fleet.logs.ended("acme", "a1")
        assert [log.kinds, log.end["finish_reason"]] == [["end"], "cancelled"]


async def test_who_was_served_before_is_known_to_the_next_leader(open_fleet: OpenFleet) -> None:
    async with open_fleet() as fleet:
        pair = await start_pair(fleet, queue={"policy": QueuePolicy.WEIGHTED_FAIR})
        fleet.start_worker("w1")
        await fleet.has_workers("w1")
        await fleet.logs.publish("greedy", job("a1", LONG))
        await until(lambda: is_empty(fleet), what="the job to be acknowledged")
        before = await saved_counters(pair, "greedy", at_least=QueueConfig().work(0, LONG))
        pair.leader.kill()
        await pair.grants_with(epoch=2)
        await fleet.logs.publish("greedy", job("a2", SHORT))
        await fleet.logs.ended("greedy", "a2")
        assert await saved_counters(pair, "greedy", at_least=before + SHORT) < before + LONG


async def saved_counters(pair: QueuePair, tenant: str, at_least: float) -> float:
    """The tenant's counter in the snapshot, once it has come so far."""
    counter = 0.0

    async def has_come_so_far() -> bool:
        nonlocal counter
        saved = await pair.saved("fairness.default")
        counter = 0.0 if saved is None else saved["counters"].get(tenant, 0.0)
        return counter >= at_least

    await until(has_come_so_far, what=f"a snapshot of {at_least} for {tenant}")
    return counter
