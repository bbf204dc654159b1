"""SIGTERM, as a pod gets it when it has to go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from headway.broker.client import Client
from loadtest.faults.fleet import Fleet
from loadtest.faults.process import until

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
LONG = 900
NUM_JOBS = 6


async def test_a_worker_that_is_told_to_go_finishes_what_fits_and_hands_back_the_rest(
    open_fleet: OpenFleet, tenant: str
) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue()
        leaving = fleet.start_worker("leaving", roles={"drain_seconds": 0.3})
        await fleet.has_workers("leaving")
        async with Client.connect(fleet.nats.url, tenant=tenant) as client:
            ids = [f"n{number}" for number in range(NUM_JOBS)]
            lengths = {job_id: 8 if number == 0 else LONG for number, job_id in enumerate(ids)}
            options = {"temperature": 1.0, "seed": 1, "ignore_eos": True}
            streams = {
                job_id: await client.submit("Hello", id=job_id, max_tokens=lengths[job_id], **options) for job_id in ids
            }
            first = {job_id: await anext(stream) for job_id, stream in streams.items()}
            leaving.terminate()
            await until(lambda: "finishing" in leaving.said, what="the worker to have understood")
            late = await client.submit("Hello", id="late", max_tokens=8, ignore_eos=True)
            assert await leaving.ended() == 0
            fleet.start_worker("staying")
            results = {job_id: await stream.result(timeout_seconds=60) for job_id, stream in streams.items()}
            assert (await late.result(timeout_seconds=60)).num_attempts == 1
        check_results(results, lengths, first)
        logs = {job_id: fleet.logs.of(tenant, job_id) for job_id in ids}
        assert logs["n0"].kinds == ["attempt", "tokens", "end"]
        handed_back = [log for log in logs.values() if log.of_kind("released")]
        assert handed_back, "some were too long to be finished"
        for log in handed_back:
            assert log.kinds == ["attempt", "tokens", "released", "attempt", "tokens", "end"]
            assert log.workers == ["leaving", "staying"]
        assert fleet.logs.of(tenant, "late").workers == ["staying"]


def check_results(results: dict, lengths: dict[str, int], first: dict) -> None:
    """The same seed, so the same output, whoever went on with it; and what was seen first stands at its beginning."""
    longest = results["n1"].token_ids
    for job_id, result in results.items():
        assert result.token_ids == longest[: lengths[job_id]]
        assert result.token_ids[: len(first[job_id].token_ids)] == first[job_id].token_ids


async def test_a_worker_with_time_to_finish_hands_nothing_back(open_fleet: OpenFleet, tenant: str) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue()
        leaving = fleet.start_worker("leaving", roles={"drain_seconds": 60.0})
        await fleet.has_workers("leaving")
        async with Client.connect(fleet.nats.url, tenant=tenant) as client:
            stream = await client.submit("Hello", id="a1", max_tokens=LONG, ignore_eos=True)
            await anext(stream)
            leaving.terminate()
            result = await stream.result(timeout_seconds=60)
        assert (len(result.token_ids), result.num_attempts) == (LONG, 1)
        assert await leaving.ended() == 0


async def test_a_worker_that_is_told_twice_hands_everything_back_at_once(open_fleet: OpenFleet, tenant: str) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue()
        leaving = fleet.start_worker("leaving", roles={"drain_seconds": 3600.0})
        await fleet.has_workers("leaving")
        async with Client.connect(fleet.nats.url, tenant=tenant) as client:
            stream = await client.submit("Hello", id="a1", max_tokens=LONG, ignore_eos=True, seed=1)
            first = await anext(stream)
            leaving.terminate()
            await until(lambda: "finishing" in leaving.said, what="the worker to have understood")
            leaving.terminate()
            assert await leaving.ended() == 0
            log = fleet.logs.of(tenant, "a1")
            assert log.kinds == ["attempt", "tokens", "released"]
            fleet.start_worker("staying")
            result = await stream.result(timeout_seconds=60)
        assert result.token_ids[: len(first.token_ids)] == first.token_ids
        log = fleet.logs.of(tenant, "a1")
        assert (len(log.token_ids), log.num_gaps, log.num_overlaps) == (LONG, 0, 0)
