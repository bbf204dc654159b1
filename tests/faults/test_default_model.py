"""The model that users get, in its own precision: what was delivered never changes, though what follows may."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from headway.broker.client import Client
from headway.engine.config import EngineConfig
from loadtest.faults.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
MAX_TOKENS = 96
NUM_KILLS = 3
ENGINE = {"model": EngineConfig().model, "dtype": "bfloat16", "kv_memory": "64MiB"}


async def test_in_low_precision_nothing_that_was_delivered_changes_through_kills(
    open_fleet: OpenFleet, tenant: str
) -> None:
    async with open_fleet() as fleet:
        fleet.start_queue()
        worker = fleet.start_worker("w1", engine=ENGINE, roles={"max_restart_seconds": 0.05})
        await fleet.has_workers("w1")
        async with Client.connect(fleet.nats.url, tenant=tenant) as client:
            options = {"max_tokens": MAX_TOKENS, "ignore_eos": True, "temperature": 0.7, "seed": 1}
            stream = await client.submit("Once upon a time", id="a1", **options)
            seen: list[int] = []
            for kill in range(NUM_KILLS):
                while len(seen) < (kill + 1) * MAX_TOKENS // (NUM_KILLS + 2):
                    seen += (await anext(stream)).token_ids
                assert len(fleet.signal_engine("w1", signal.SIGKILL)) == 1
                await fleet.logs.until(
                    lambda n=kill: len(fleet.logs.of(tenant, "a1").workers) > n + 1, 120.0, "the next attempt"
                )
            result = await stream.result(timeout_seconds=120)
            late = await client.result("a1", timeout_seconds=30)
        assert list(result.token_ids[: len(seen)]) == seen
        assert (late.token_ids, late.text) == (result.token_ids, result.text)
        assert (len(result.token_ids), result.num_attempts) == (MAX_TOKENS, NUM_KILLS + 1)
        assert worker.is_running
