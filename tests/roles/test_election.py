"""The one suite for every kind of lock. To add one, write a function like `nats_locks` and name it in `KINDS`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.election import KeyValueLock
from headway.broker.embedded import EmbeddedNats
from headway.broker.streams import ensure_streams
from headway.core.election import ElectionConfig, LeaderLock, LockRecord, StoredLock
from headway.core.errors import BrokerError
from headway.roles.election import LeadershipLost, LockElection, Unopposed
from tests.cluster.locks import kubernetes_locks

Eventually = Callable[..., Awaitable[None]]
OpenLock = Callable[[], Awaitable[LeaderLock]]
"""Another process's way to the same lock, each with a connection of its own."""

QUICK = ElectionConfig(election_lease_seconds=1.8, election_renew_seconds=0.1)
FOR_EVER = ElectionConfig(election_lease_seconds=600.0, election_renew_seconds=0.1)
NUM_RENEWALS = 25
"""So many last longer than `QUICK`'s lease."""


@asynccontextmanager
async def nats_locks(nats_server: EmbeddedNats) -> AsyncIterator[OpenLock]:
    config = BrokerConfig(nats_url=nats_server.url, nats_timeout_seconds=2.0)
    async with AsyncExitStack() as stack:

        async def open_lock() -> LeaderLock:
            connection = await stack.enter_async_context(await connect(config, "tests", timeout_seconds=10))
            await ensure_streams(connection.js, config)
            return KeyValueLock(connection)

        yield open_lock


KINDS: dict[str, Callable[[EmbeddedNats], AbstractAsyncContextManager[OpenLock]]] = {
    "nats": nats_locks,
    "kubernetes": kubernetes_locks,
}


@pytest.fixture(params=KINDS)
async def open_lock(request: pytest.FixtureRequest, fresh_nats: EmbeddedNats) -> AsyncIterator[OpenLock]:
    """Of every kind, as yet never held."""
    async with KINDS[request.param](fresh_nats) as open_lock:
        yield open_lock


@dataclass
class BadLine:
    """A lock with a line to it that may fail in any way."""

    lock: LeaderLock
    is_cut: bool = False
    """Everything fails at once."""
    is_silent: bool = False
    """Nothing is ever answered."""
    loses_answers: bool = False
    """Writes arrive, and fail all the same."""
    num_writes: int = 0

    async def read(self) -> StoredLock | None:
        await self._pass()
        return await self.lock.read()

    async def write(self, record: LockRecord, version: str | None) -> str | None:
        await self._pass()
        self.num_writes += 1
        stored = await self.lock.write(record, version)
        if self.loses_answers:
            raise BrokerError("the answer was lost")
        return stored

    async def wait_for_change(self, timeout_seconds: float) -> None:
        await self._pass()
        await self.lock.wait_for_change(timeout_seconds)

    async def _pass(self) -> None:
        if self.is_cut:
            raise BrokerError("the line is cut")
        if self.is_silent:
            await asyncio.Event().wait()


@dataclass
class Member:
    """One process of the queue, with what it has heard of who leads."""

    election: LockElection
    line: BadLine
    heard: list[str | None] = field(default_factory=list)
    leading: asyncio.Event = field(default_factory=asyncio.Event)
    holding: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Campaigns, and holds what it gets."""
        await self.election.campaign()
        self.holding = asyncio.create_task(self.election.hold())
        self.leading.set()
        await asyncio.wait((self.holding,))

    async def renewed(self, eventually: Eventually, times: int) -> None:
        num_writes = self.line.num_writes
        await eventually(lambda: self.line.num_writes >= num_writes + times)


Join = Callable[..., Awaitable[Member]]


@pytest.fixture
async def join(open_lock: OpenLock) -> AsyncIterator[Join]:
    """``await join("a")``: a member that campaigns from now on; its address is its name."""
    members: list[Member] = []
    tasks: list[asyncio.Task[None]] = []

    async def join_(name: str, config: ElectionConfig = QUICK) -> Member:
        line, heard = BadLine(await open_lock()), list[str | None]()
        member = Member(LockElection(line, f"{name}-1", name, config, heard.append), line, heard)
        members.append(member)
        tasks.append(asyncio.create_task(member.serve(), name=f"member {name}"))
        return member

    yield join_
    tasks += [member.holding for member in members if member.holding]
    while tasks:
        for task in tasks:
            task.cancel()
        # Before Python 3.12, `asyncio.wait_for` loses a cancellation that comes together with its result.
        _, left = await asyncio.wait(tasks, timeout=0.5)
        tasks = list(left)


# -- the lock --------------------------------------------------------------------------------------------------------


def record(holder: str = "a-1") -> LockRecord:
    return LockRecord(holder, f"{holder}:4280", 3.0)


async def test_a_lock_that_nobody_has_held_is_nothing(open_lock: OpenLock) -> None:
    assert await (await open_lock()).read() is None


async def test_what_one_writes_all_others_read(open_lock: OpenLock) -> None:
    one, other = await open_lock(), await open_lock()
    version = await one.write(record(), None)
    assert version is not None
    assert await other.read() == StoredLock(record(), version)


@pytest.mark.parametrize("record_", [LockRecord("", None, 3.0), LockRecord("ä-1", None, 0.25)])
async def test_records_come_back_as_they_were(open_lock: OpenLock, record_: LockRecord) -> None:
    lock = await open_lock()
    await lock.write(record_, None)
    found = await lock.read()
    assert found is not None
    assert found.record == record_


async def test_every_write_changes_the_version_even_if_it_says_the_same(open_lock: OpenLock) -> None:
    lock = await open_lock()
    version, versions = None, set[str]()
    for _ in range(5):
        version = await lock.write(record(), version)
        assert version is not None
        versions.add(version)
    assert len(versions) == 5


async def test_a_write_after_somebody_elses_is_not_stored(open_lock: OpenLock) -> None:
    one, other = await open_lock(), await open_lock()
    first = await one.write(record("a-1"), None)
    second = await other.write(record("b-1"), first)
    assert second is not None
    assert await one.write(record("a-1"), first) is None
    assert await one.write(record("a-1"), None) is None
    assert await one.read() == StoredLock(record("b-1"), second)


async def test_of_many_first_writes_one_is_stored(open_lock: OpenLock) -> None:
    locks = [await open_lock() for _ in range(5)]
    written = await asyncio.gather(*(lock.write(record(f"{n}-1"), None) for n, lock in enumerate(locks)))
    assert sum(version is not None for version in written) == 1


async def test_who_waits_for_a_change_hears_of_it_also_if_it_came_after_the_last_look(open_lock: OpenLock) -> None:
    one, other = await open_lock(), await open_lock()
    await other.wait_for_change(0.01)
    await other.read()
    await one.write(record(), None)
    async with asyncio.timeout(10):
        await other.wait_for_change(600.0)


# -- the election ----------------------------------------------------------------------------------------------------


async def test_who_comes_first_leads_and_the_others_know_where(join: Join, eventually: Eventually) -> None:
    first = await join("first")
    await first.leading.wait()
    others = [await join("second"), await join("third")]
    await eventually(lambda: all(other.heard == ["first"] for other in others))
    assert first.election.leads()
    assert not any(other.election.leads() for other in others)


async def test_of_many_that_come_at_once_one_leads(join: Join, eventually: Eventually) -> None:
    members = [await join(f"m{number}") for number in range(6)]
    await eventually(lambda: all(member.heard for member in members))
    [leader] = [member for member in members if member.election.leads()]
    assert {member.heard[-1] for member in members} == {leader.election._candidacy.record.address}


async def test_a_leader_that_renews_leads_on_for_longer_than_a_lease(join: Join, eventually: Eventually) -> None:
    first = await join("first")
    await first.leading.wait()
    second = await join("second")
    await first.renewed(eventually, NUM_RENEWALS)
    assert first.election.leads()
    assert second.heard == ["first"]


async def test_when_the_leader_steps_down_another_leads_at_once(join: Join) -> None:
    first = await join("first", FOR_EVER)
    await first.leading.wait()
    second = await join("second", FOR_EVER)
    stepping_down = asyncio.create_task(first.election.step_down())
    await asyncio.sleep(0)
    assert not first.election.leads(), "it grants nothing from the call on"
    await stepping_down
    async with asyncio.timeout(20):
        await second.leading.wait()


async def test_when_the_leader_vanishes_another_leads_after_its_lease(join: Join) -> None:
    first = await join("first")
    await first.leading.wait()
    second = await join("second")
    assert first.holding is not None
    first.holding.cancel()
    async with asyncio.timeout(20):
        await second.leading.wait()
    assert not first.election.leads()
    assert second.heard[-3:] == ["first", None, "second"], "for a while it knows that nobody leads"


@pytest.mark.parametrize("fault", ["is_cut", "is_silent"])
async def test_a_leader_that_cannot_renew_stops_before_another_leads(
    join: Join, eventually: Eventually, fault: str
) -> None:
    first = await join("first")
    await first.leading.wait()
    second = await join("second")
    await eventually(lambda: bool(second.heard))
    setattr(first.line, fault, True)
    assert first.holding is not None
    with pytest.raises(LeadershipLost, match="not renewed"):
        async with asyncio.timeout(20):
            await first.holding
    assert not first.election.leads()
    assert not second.election.leads()
    async with asyncio.timeout(20):
        await second.leading.wait()


async def test_a_leader_that_was_paused_knows_it_before_it_does_anything(join: Join, eventually: Eventually) -> None:
    first = await join("first")
    await first.leading.wait()
    assert first.holding is not None
    first.holding.cancel()
    await eventually(lambda: not first.election.leads())
    num_writes = first.line.num_writes
    with pytest.raises(LeadershipLost):
        await first.election.hold()
    assert first.line.num_writes == num_writes, "though nobody else has taken it"


async def test_renewals_whose_answers_are_lost_now_and_then_cost_nothing(join: Join, eventually: Eventually) -> None:
    first = await join("first")
    await first.leading.wait()
    second = await join("second")
    for _ in range(4):
        first.line.loses_answers = True
        await first.renewed(eventually, 1)
        first.line.loses_answers = False
        await first.renewed(eventually, 2)
    assert first.election.leads()
    assert second.heard == ["first"]


async def test_a_leader_whose_lock_was_taken_stops_at_once(join: Join, open_lock: OpenLock) -> None:
    first = await join("first", FOR_EVER)
    await first.leading.wait()
    thief = await open_lock()
    while (found := await thief.read()) and not await thief.write(record("thief-1"), found.version):
        pass
    assert first.holding is not None
    with pytest.raises(LeadershipLost, match="another process"):
        async with asyncio.timeout(20):
            await first.holding
    assert not first.election.leads()


async def test_one_that_cannot_reach_the_lock_does_not_lead_until_it_can(join: Join, eventually: Eventually) -> None:
    first = await join("first")
    await first.leading.wait()
    second = await join("second")
    await eventually(lambda: second.heard == ["first"])
    second.line.is_cut = True
    await first.election.step_down()
    await eventually(lambda: second.heard == ["first", None])
    assert not second.election.leads()
    second.line.is_cut = False
    async with asyncio.timeout(20):
        await second.leading.wait()


async def test_after_a_leadership_the_same_process_may_lead_again(join: Join) -> None:
    only = await join("only")
    for _ in range(3):
        async with asyncio.timeout(20):
            await only.election.campaign()
        assert only.election.leads()
        await only.election.step_down()
        assert not only.election.leads()


async def test_without_an_election_who_asks_leads_until_it_steps_down() -> None:
    election = Unopposed()
    assert not election.leads()
    await election.campaign()
    assert election.leads()
    await election.step_down()
    assert not election.leads()
