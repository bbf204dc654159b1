"""The Lease as the leader's lock, under conflicts, outages and clocks that disagree, over real HTTP.

Who may lead when is decided by `Candidacy`; its clock is a number here, one per process.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from headway.cluster.api import KubernetesApi
from headway.cluster.errors import ApiRefused, ApiUnavailable
from headway.cluster.lease_lock import ADDRESS, LeaseLock
from headway.core.election import Candidacy, ElectionConfig
from tests.cluster.kubernetes import LEASES

NAMESPACE, NAME = "inference", "headway-queue"
PATH = f"{LEASES.format(NAMESPACE)}/{NAME}"
CONFIG = ElectionConfig(election_lease_seconds=15.0, election_renew_seconds=2.0)


@dataclass
class Process:
    """A queue process with a clock of its own."""

    lock: LeaseLock
    candidacy: Candidacy
    now: float = 0.0

    @classmethod
    def start(cls, api: KubernetesApi, name: str, clock: float = 0.0) -> Process:
        return cls(LeaseLock(api, NAMESPACE, NAME), Candidacy(name, f"{name}:4280", CONFIG), clock)

    async def look(self) -> None:
        self.candidacy.saw(await self.lock.read(), self.now)

    async def take(self) -> bool:
        """Look, and write if that is allowed."""
        await self.look()
        return self.candidacy.may_take(self.now) and await self.write()

    async def write(self) -> bool:
        version = await self.lock.write(self.candidacy.record, self.candidacy.version)
        if version is not None:
            self.candidacy.wrote(version, self.now)
        return version is not None

    @property
    def leads(self) -> bool:
        return self.candidacy.leads(self.now)


@pytest.fixture
def start(open_api):
    return lambda name, clock=0.0: Process.start(open_api(), name, clock)


async def test_the_first_makes_the_lease_and_leads(start, server):
    first = start("first")
    assert await first.take()
    assert first.leads
    lease = server.objects[PATH]
    assert lease["spec"]["holderIdentity"] == "first"
    assert lease["spec"]["leaseDurationSeconds"] == 15
    assert lease["metadata"]["annotations"][ADDRESS] == "first:4280"


async def test_of_two_that_find_none_only_one_makes_it(start):
    first, second = start("first"), start("second")
    await first.look()
    await second.look()
    assert sorted(await asyncio.gather(first.write(), second.write())) == [False, True]


async def test_of_two_that_find_it_free_only_one_takes_it(start, server):
    server.put(LEASES.format(NAMESPACE), NAME, spec={"holderIdentity": ""})
    first, second = start("first"), start("second")
    await first.look()
    await second.look()
    assert sorted(await asyncio.gather(first.write(), second.write())) == [False, True]


async def test_a_renewal_that_somebody_came_before_is_refused(start, server):
    leader = start("leader")
    await leader.take()
    server.objects[PATH]["metadata"]["resourceVersion"] = "changed"
    assert not await leader.write()
    await leader.look()
    assert await leader.write(), "it was not taken, only touched"


async def test_a_follower_knows_the_leader_and_waits(start):
    leader, follower = start("leader"), start("follower")
    await leader.take()
    assert not await follower.take()
    assert follower.candidacy.leader(follower.now).address == "leader:4280"


@pytest.mark.parametrize("skew", [-1e6, -60.0, 0.0, 60.0, 1e6])
async def test_a_silent_leader_stops_before_anybody_takes_its_place_whatever_the_clocks_show(start, skew):
    leader, follower = start("leader"), start("follower", skew)
    await leader.take()
    for second in range(1, 16):
        assert not await follower.take()
        leader.now, follower.now = second, skew + second
    assert not leader.leads
    assert await follower.take()


async def test_signs_of_life_count_and_not_the_times_that_are_written(start, server):
    leader, follower = start("leader"), start("follower")
    await leader.take()
    for second in range(0, 120, 5):
        leader.now = follower.now = float(second)
        assert not await follower.take()
        assert await leader.write()
        server.objects[PATH]["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"
    assert leader.leads


async def test_a_released_lease_is_taken_at_once(start, server):
    leader, follower = start("leader"), start("follower")
    await leader.take()
    assert not await follower.take()
    await leader.lock.write(leader.candidacy.free_record, leader.candidacy.version)
    assert await follower.take()
    assert server.objects[PATH]["spec"]["leaseTransitions"] == 1


async def test_what_others_put_into_the_lease_stays(start, server):
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    server.put(LEASES.format(NAMESPACE), NAME, metadata={"labels": labels, "annotations": {"a": "b"}}, spec={"new": 1})
    assert await start("first").take()
    lease = server.objects[PATH]
    assert lease["metadata"]["labels"] == labels
    assert lease["metadata"]["annotations"]["a"] == "b"
    assert lease["spec"]["new"] == 1


async def test_a_lease_that_is_deleted_under_its_leader_is_made_again(start, server):
    leader = start("leader")
    await leader.take()
    del server.objects[PATH]
    assert not await leader.write()
    assert await leader.take()


async def test_a_renewal_whose_answer_was_lost_is_found_to_be_stored(start, server):
    leader = start("leader")
    await leader.take()
    server.loses_answers = True
    with pytest.raises(ApiUnavailable):
        await leader.write()
    server.loses_answers = False
    assert not await leader.write(), "it names the version before"
    await leader.look()
    assert leader.candidacy.is_ours
    assert await leader.write()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_an_api_that_refuses_says_so(start, server, status):
    server.failure = status
    with pytest.raises(ApiRefused) as refused:
        await start("first").take()
    assert refused.value.status == status


async def test_an_api_that_does_not_answer_is_given_up_in_time(open_api, server):
    server.hold()
    process = Process.start(open_api(timeout_seconds=0.1), "first")
    with pytest.raises(ApiUnavailable, match=r"no answer in 0\.1 s"):
        await process.take()
