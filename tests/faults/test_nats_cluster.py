"""Three NATS servers, each stream on all of them: one dies and comes back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from headway.broker.streams import JOBS
from loadtest.faults.calm import run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.storm import Storm
from tests.nats_cluster import NatsCluster

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
REPLICAS = {
    "num_stream_replicas": 3,
    "max_waiting_bytes": 16 << 20,
    "max_result_bytes": 16 << 20,
    "max_dead_bytes": 1 << 20,
}


async def test_the_loss_of_the_server_that_leads_a_stream_loses_and_repeats_nothing(
    open_fleet: OpenFleet, tenant: str, tmp_path: Path
) -> None:
    async with NatsCluster(tmp_path / "cluster") as cluster, open_fleet(nats_url=cluster.url) as fleet:
        fleet.start_queue(broker=REPLICAS)
        fleet.start_worker("w1", broker=REPLICAS)
        await fleet.has_workers("w1")
        streams = iter([JOBS])

        async def strike() -> None:
            stream = next(streams)
            leader = await cluster.leader_of(stream)
            await cluster.kill(leader)
            assert await cluster.leader_of(stream) != leader
            await cluster.start(leader)
            await cluster.is_whole(stream)

        storm = Storm(fleet, await run_calm(fleet), tenant, strike)
        assert await storm.run(num_strikes=1) == []
