"""One job of each kind is interrupted at every single token, and reads as if nothing had happened."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from loadtest.faults.calm import Calm, run_calm
from loadtest.faults.fleet import Fleet
from loadtest.faults.gate import GatedProxy, TokenGate
from loadtest.faults.jobs import MAX_TOKENS
from loadtest.faults.process import until
from loadtest.faults.proxy import Proxy, serving
from loadtest.faults.tiny_model import save_tiny_model

pytestmark = pytest.mark.asyncio(loop_scope="session")
TENANT = "chain"
NUM_SPARES = 2
LONGER = 4 * MAX_TOKENS
"""Of jobs whose engine is struck: it must not have finished them before their last token to be struck at."""
FINE = frozenset({"greedy", "seeded"})
"""These are struck at every token; the others, of which some tokens only make text together, at most of them."""
SHORT_LEASE = {"lease_seconds": 0.4}
Strike = Callable[[], Awaitable[None]]
OpenFleet = Callable[..., AbstractAsyncContextManager[Fleet]]


@dataclass
class Relay:
    """One worker serves at a time; the next ones have started already and wait to be let in to the leader."""

    fleet: Fleet
    nats_url: str
    engine: dict[str, str]
    stack: AsyncExitStack
    names: list[str] = field(default_factory=list)
    _doors: dict[str, Proxy] = field(default_factory=dict)
    _num_started: int = 0

    async def fill(self) -> None:
        while len(self.names) < 1 + NUM_SPARES:
            self._num_started += 1
            name = f"w{self._num_started}"
            door = await self.stack.enter_async_context(serving(Proxy(f"tcp://{self.fleet.lease_address}")))
            door.close()
            self._doors[name] = door
            self.fleet.start_worker(
                name,
                broker={"nats_url": self.nats_url, "chunk_interval_seconds": 0.0},
                lease={"lease_address": door.address},
                engine=self.engine,
            )
            self.names.append(name)

    def let_in(self) -> None:
        self._doors[self.names[0]].open()

    async def next(self) -> None:
        """The worker that serves dies, and the next one is let in."""
        self.fleet.processes[self.names.pop(0)].kill()
        self.let_in()
        await self.fill()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Slow enough that a worker can write one token before there are more."""
    return {"model": str(save_tiny_model(tmp_path_factory.mktemp("slow-model"), num_layers=12))}


@asynccontextmanager
async def relay_of(fleet: Fleet, gate: TokenGate, engine: dict[str, str]) -> AsyncIterator[Relay]:
    async with AsyncExitStack() as stack:
        line = await stack.enter_async_context(serving(GatedProxy(fleet.nats.url, gate.allows)))
        fleet.start_queue(lease_terms=SHORT_LEASE)
        relay = Relay(fleet, line.url, engine, stack)
        await relay.fill()
        relay.let_in()
        await fleet.has_workers(relay.names[0])
        yield relay


@dataclass
class Chain:
    """The jobs under fire."""

    fleet: Fleet
    calm: Calm
    gate: TokenGate
    strike: Strike

    async def run(self) -> list[set[int]]:
        """Returns, for each strike, how many tokens stood in the logs of the fine jobs then."""
        self.gate.limit = 0
        for kind in self.calm.kinds:
            await self.fleet.logs.publish(TENANT, self.calm.job(kind, kind))
        struck_at: list[set[int]] = []
        while len(struck_at) < MAX_TOKENS:
            self.gate.limit = len(struck_at)
            await self._reach_limit()
            struck_at.append({len(self.fleet.logs.of(TENANT, kind).token_ids) for kind in FINE})
            await self.strike()
        self.gate.open()
        return struck_at

    async def differences(self) -> list[str]:
        """Of all jobs, once they have ended."""
        logs = {kind: await self.fleet.logs.ended(TENANT, kind) for kind in self.calm.kinds}
        return [difference for kind, log in logs.items() for difference in self.calm.differences(kind, log)]

    async def _reach_limit(self) -> None:
        """A worker whose first record carries several tokens cannot write just the next one: it is struck early."""
        while not await self._reached_limit(self.gate.num_crowded):
            await self.strike()

    async def _reached_limit(self, num_crowded: int) -> bool:
        """False: somebody wrote more than the next token since the gate had refused ``num_crowded`` such records."""
        await until(lambda: self._is_there or self.gate.num_crowded > num_crowded, what=f"token {self.gate.limit}")
        return self._is_there

    @property
    def _is_there(self) -> bool:
        logs = [self.fleet.logs.of(TENANT, kind) for kind in self.calm.kinds]
        return all(log.has_ended or (log.workers and len(log.token_ids) >= self.gate.limit) for log in logs)


async def test_a_worker_that_is_killed_at_every_token_costs_none_and_repeats_none(
    open_fleet: OpenFleet, engine: dict[str, str]
) -> None:
    gate = TokenGate(FINE)
    async with open_fleet() as fleet, relay_of(fleet, gate, engine) as relay:
        chain = Chain(fleet, await run_calm(fleet), gate, relay.next)
        assert await chain.run() == [{index} for index in range(MAX_TOKENS)]
        assert await chain.differences() == []
        assert len(set(fleet.logs.of(TENANT, "greedy").workers)) > MAX_TOKENS


async def test_an_engine_that_is_killed_at_every_token_costs_none_and_repeats_none(
    open_fleet: OpenFleet, engine: dict[str, str]
) -> None:
    gate = TokenGate(FINE)
    async with open_fleet() as fleet, serving(GatedProxy(fleet.nats.url, gate.allows)) as line:
        fleet.start_queue()
        worker = fleet.start_worker(
            "w1",
            broker={"nats_url": line.url, "chunk_interval_seconds": 0.0},
            roles={"max_restart_seconds": 0.05},
            engine=engine,
        )
        await fleet.has_workers("w1")

        async def strike() -> None:
            fleet.signal_engine("w1", signal.SIGKILL)

        chain = Chain(fleet, await run_calm(fleet, LONGER), gate, strike)
        assert await chain.run() == [{index} for index in range(MAX_TOKENS)]
        assert await chain.differences() == []
        assert worker.is_running
