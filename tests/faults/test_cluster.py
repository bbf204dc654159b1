"""A NATS cluster of three servers, with three replicas of every stream, that loses the one that matters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from nats.errors import Error

from headway.broker.errors import BrokerError
from headway.broker.streams import JOBS, RESULTS, STATE
from loadtest.faults.fleet import Fleet
from loadtest.faults.process import until
from tests.nats_cluster import NatsCluster

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]

REPLICATED = {"broker": {"num_stream_replicas": 3}}
NUM_JOBS = 8
MAX_TOKENS = 300


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsCluster]:
    async with NatsCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(cluster: NatsCluster, open_fleet: OpenFleet) -> AsyncIterator[Fleet]:
    """A queue and a worker on the cluster."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(open_fleet(nats_url=cluster.url))
        fleet.start_queue(**REPLICATED)
        fleet.start_worker("w1", **REPLICATED)
        await fleet.has_workers("w1")
        yield fleet


async def publish(fleet: Fleet) -> list[str]:
    ids = [f"a{number}" for number in range(NUM_JOBS)]
    for job_id in ids:
        job: dict[str, Any] = {"id": job_id, "prompt": "Hello", "max_tokens": MAX_TOKENS, "ignore_eos": True, "seed": 7}
        await fleet.logs.publish("acme", job)
    return ids


async def check_all_ended(fleet: Fleet, ids: list[str]) -> None:
    async def have_ended() -> bool:
        return await is_caught_up(fleet) and all(fleet.logs.of("acme", job_id).has_ended for job_id in ids)

    await until(have_ended, 200, f"the ends of {ids}")
    logs = [fleet.logs.of("acme", job_id) for job_id in ids]
    for log in logs:
        assert (log.num_gaps, log.num_overlaps, len(log.of_kind("end"))) == (0, 0, 1), log.records
        assert (log.end["finish_reason"], len(log.token_ids)) == ("length", MAX_TOKENS)
        assert len(log.workers) == 1, "nothing was begun again"
    assert len({tuple(log.token_ids) for log in logs}) == 1
    await until(lambda: has_no_jobs(fleet), 60, "every job to be acknowledged")


async def is_caught_up(fleet: Fleet) -> bool:
    """Our own connection may have been to the server that was killed."""
    try:
        await fleet.logs.read_stream()
    except (BrokerError, Error):
        return False
    return True


async def has_no_jobs(fleet: Fleet) -> bool:
    try:
        return await fleet.logs.num_jobs() == 0
    except Error:
        return False


async def test_jobs_run_from_end_to_end_on_three_replicas(cluster: NatsCluster, fleet: Fleet) -> None:
    for stream in (JOBS, RESULTS, STATE):
        await cluster.is_whole(stream)
    await check_all_ended(fleet, await publish(fleet))


@pytest.mark.parametrize("stream", [RESULTS, STATE])
async def test_a_cluster_that_stays_one_server_short_loses_and_repeats_nothing(
    cluster: NatsCluster, fleet: Fleet, stream: str
) -> None:
    """The server that is lost leads the logs of the jobs, or the lock of the queue's leader (and never comes back)."""
    ids = await publish(fleet)
    for job_id in ids:
        await fleet.logs.has_tokens("acme", job_id)
    former = await cluster.leader_of(stream)
    await cluster.kill(former)
    await check_all_ended(fleet, ids)
    assert await cluster.leader_of(stream) != former
