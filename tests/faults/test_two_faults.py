"""Two faults in the same moment, or one on top of another, under load: two queues, two workers, one NATS."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest
import pytest_asyncio
from nats.js.errors import NotFoundError

from loadtest.faults.calm import Calm, run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.process import Process, until
from loadtest.faults.queue_pair import JOBS, QueuePair, start_pair
from loadtest.faults.storm import Storm

pytestmark = pytest.mark.asyncio(loop_scope="session")
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]
STATE_BUCKET = "HEADWAY_STATE"
NUM_STRIKES = 1


class Siege:
    """The fleet, and ways to strike it twice at once. After each, everything runs again."""

    def __init__(self, pair: QueuePair, calm: Calm) -> None:
        self.pair = pair
        self.fleet = pair.fleet
        self.calm = calm

    async def leader(self) -> str:
        """The name of the queue that holds the lock."""
        names = {address: name for name, address in self.fleet.lease_addresses.items()}
        found: list[str] = []

        async def is_known() -> bool:
            with suppress(NotFoundError):
                found.append(names.get((await self.pair.lock())["address"] or "", ""))
            return bool(found and found[-1])

        await until(is_known, what="a leader")
        return found[-1]

    async def kill(self, *names: str) -> list[Process]:
        killed = [self.fleet.processes[name] for name in names]
        for process in killed:
            process.kill()
        for process in killed:
            await process.ended()
        return killed

    def start(self, *names: str) -> None:
        for name in names:
            self.fleet.start_queue(name) if name.startswith("q") else self.fleet.start_worker(name)

    async def epoch(self) -> int:
        saved = await self.pair.saved("epoch")
        return 0 if saved is None else int(saved["epoch"])

    # -- the strikes

    async def leader_and_worker_die(self) -> None:
        names = await self.leader(), "w1"
        await self.kill(*names)
        self.start(*names)

    async def both_queues_die(self) -> None:
        await self.kill("q1", "q2")
        self.start("q1", "q2")

    async def nats_dies_while_the_leader_sleeps(self) -> None:
        sleeper, before = self.fleet.processes[await self.leader()], await self.epoch()
        sleeper.stop()
        await self.fleet.nats.stop(kill=True)
        await self.fleet.nats.start()
        await self.pair.grants_with(before + 1)
        sleeper.resume()

    async def leader_dies_while_a_worker_sleeps(self) -> None:
        leader, before = await self.leader(), await self.epoch()
        self.fleet.processes["w1"].stop()
        await self.kill(leader)
        await self.pair.grants_with(before + 1)
        self.fleet.processes["w1"].resume()
        self.start(leader)

    async def nats_and_an_engine_die(self) -> None:
        self.fleet.signal_engine("w1", signal.SIGKILL)
        await self.fleet.nats.stop(kill=True)
        self.fleet.signal_engine("w2", signal.SIGKILL)
        await self.fleet.nats.start()

    async def bucket_and_consumer_are_deleted(self) -> None:
        js = self.fleet.logs.connection.js
        await js.delete_key_value(STATE_BUCKET)
        for consumer in await self.pair.consumers():
            with suppress(NotFoundError):
                await js.delete_consumer(JOBS, consumer)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def siege(open_fleet: OpenFleet) -> AsyncIterator[Siege]:
    async with open_fleet() as fleet:
        pair = await start_pair(fleet)
        for name in ("w1", "w2"):
            fleet.start_worker(name)
        await fleet.has_workers("w1", "w2")
        yield Siege(pair, await run_calm(fleet))


STRIKES: tuple[Callable[[Siege], Awaitable[None]], ...] = (
    Siege.leader_and_worker_die,
    Siege.both_queues_die,
    Siege.nats_dies_while_the_leader_sleeps,
    Siege.leader_dies_while_a_worker_sleeps,
    Siege.nats_and_an_engine_die,
    Siege.bucket_and_consumer_are_deleted,
)


@pytest.mark.parametrize("strike", STRIKES)
async def test_two_faults_at_once_lose_nothing_and_repeat_nothing(
    siege: Siege, tenant: str, strike: Callable[[Siege], Awaitable[None]]
) -> None:
    storm = Storm(siege.fleet, siege.calm, tenant, lambda: strike(siege))
    assert await storm.run(NUM_STRIKES) == []
    await siege.fleet.has_workers("w1", "w2")
