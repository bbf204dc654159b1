"""Who gets which job, and when."""

from __future__ import annotations

import pytest

from headway.core.job import FinishReason
from headway.core.lease_actions import GiveWay
from headway.core.lease_messages import Demand, Ended, HeldJob, Recall, Refused, Returned, Welcome
from headway.core.lease_terms import LeaseTerms
from headway.core.records import GrantToken
from headway.core.status import LastSeen


def test_a_worker_is_welcomed_with_the_epoch_before_anything_is_granted(make_leader, book):
    leader = make_leader(epoch=7)
    leader.add()
    _, actions = leader.connect()
    assert actions[0].message == Welcome(7, leader.terms.lease_seconds)
    assert book.grants(actions)[0].token == GrantToken(7, 1)


def test_jobs_are_granted_in_policy_order_up_to_the_demand(leader, book):
    jobs = [leader.add()[0] for _ in range(5)]
    _, actions = leader.connect(demand=3)
    assert [grant.key for grant in book.grants(actions)] == [job.key for job in jobs[:3]]


def test_a_job_that_comes_later_goes_to_a_worker_that_has_asked(leader, book):
    stream, _ = leader.connect()
    _, actions = leader.add()
    assert book.streams_granted(actions) == [stream]


def test_a_grant_that_the_demand_has_not_counted_yet_is_counted_for_it(leader, book):
    leader.add(), leader.add(), leader.add()
    stream, _ = leader.connect(demand=1)
    assert not book.grants(leader.receive(stream, Demand(1, 100, last_grant=0)))
    assert len(book.grants(leader.receive(stream, Demand(1, 100, last_grant=1)))) == 1


def test_a_job_that_ended_before_the_next_demand_leaves_its_room_to_another(leader, book):
    leader.add(), leader.add()
    stream, actions = leader.connect(demand=1)
    assert len(book.grants(leader.ended(stream, book.grants(actions)[0]))) == 1


def test_pages_of_grants_in_flight_are_counted(leader, book):
    """Jobs of 15 prompt tokens: one page each, with the token that comes next."""
    for _ in range(4):
        leader.add()
    stream, _ = leader.connect(demand=0)
    assert len(book.grants(leader.receive(stream, Demand(4, 2)))) == 2


def test_a_job_that_does_not_fit_the_free_pages_waits(leader, book):
    stream, _ = leader.connect()
    leader.add()
    leader.receive(stream, Demand(3, 1, last_grant=1))
    _, actions = leader.add(num_prompt_tokens=16)
    assert not book.grants(actions)
    assert book.grants(leader.receive(stream, Demand(3, 2, last_grant=1)))


def test_load_spreads_over_the_workers(leader, hello, book):
    streams = [leader.connect(hello(name))[0] for name in ("w1", "w2", "w3")]
    granted = [book.streams_granted(leader.add()[1])[0] for _ in range(6)]
    assert sorted(granted) == sorted(streams * 2)


def test_a_grant_says_how_long_the_job_waited_and_how_long_it_has_left(leader, book):
    leader.add(expires_at=leader.now + 60)
    leader.now += 20
    grant = book.grants(leader.connect()[1])[0]
    assert (grant.queue_seconds, grant.deadline_seconds) == (20, 40)


def test_a_job_whose_deadline_passed_while_it_waited_ends_as_expired(leader, book):
    job, _ = leader.add(expires_at=leader.now + 5)
    end = book.ends(leader.tick(5))[0]
    assert (end.job, end.finish_reason) == (job, FinishReason.EXPIRED)
    assert book.settled(leader.leases.ended_by_leader(job.key, FinishReason.EXPIRED)) == [job]
    assert leader.num_waiting == 0


def test_an_expired_job_is_not_granted(leader, book):
    leader.add(expires_at=leader.now + 5)
    leader.now += 6
    _, actions = leader.connect()
    assert not book.grants(actions)
    assert len(book.ends(actions)) == 1


def test_a_job_goes_only_to_workers_of_its_model(make_leader, hello, book):
    leader = make_leader(models=("m", "other"))
    leader.connect(hello("w1", model="other"))
    assert not book.grants(leader.add()[1])


def test_a_worker_of_an_unknown_model_is_turned_away_with_the_reason(leader, hello, book):
    _, actions = leader.connect(hello(model="mistral"))
    assert "mistral" in book.drops(actions)[0].reason


def test_a_job_larger_than_any_worker_is_granted_all_the_same_so_that_it_is_answered(leader, book):
    """Were it to wait until it fits, its client would hear nothing for ever."""
    stream, _ = leader.connect()
    leader.add()
    leader.receive(stream, Demand(3, 10, last_grant=1))
    assert len(book.grants(leader.add(num_prompt_tokens=100 * 16)[1])) == 1


def test_a_job_too_large_that_was_queued_before_any_worker_came_is_granted(leader, book):
    leader.add(num_prompt_tokens=100 * 16)
    assert len(book.grants(leader.connect()[1])) == 1


# -- takeover ------------------------------------------------------------------------------------------------------


def test_nothing_is_granted_until_the_workers_of_the_last_leader_have_said_hello(make_leader, hello, book):
    leader = make_leader(last_seen=LastSeen(frozenset({"w1", "w2"})))
    leader.add()
    assert not book.grants(leader.connect(hello("w1"))[1])
    assert book.grants(leader.connect(hello("w2"))[1])


def test_the_grace_begins_anew_when_the_stream_was_read(make_leader, book):
    leader = make_leader(terms=LeaseTerms(grace_seconds=5), last_seen=LastSeen(workers=None))
    leader.add()
    leader.connect()
    leader.now += 4
    leader.leases.restart_grace(leader.now)
    assert not book.grants(leader.tick(4))
    assert book.grants(leader.tick(1))


def test_the_grace_ends_with_time(make_leader, book):
    leader = make_leader(terms=LeaseTerms(grace_seconds=5), last_seen=LastSeen(workers=None))
    leader.add()
    assert not book.grants(leader.connect()[1])
    assert not book.grants(leader.tick(4.9))
    assert book.grants(leader.tick(0.1))


def test_a_job_that_a_worker_runs_under_a_former_leaders_grant_stays_with_it(make_leader, hello, book):
    leader = make_leader(epoch=2)
    job, _ = leader.add()
    held = HeldJob(job.key, GrantToken(1, 9), started=True)
    stream, actions = leader.connect(hello(held=[held]))
    assert not book.grants(actions)
    settled = leader.receive(stream, Ended(held.key, held.grant, FinishReason.STOP))
    assert book.settled(settled) == [job]


def test_a_held_job_that_the_leader_reads_from_the_stream_only_later_stays_with_its_worker(make_leader, hello, book):
    leader = make_leader(epoch=2)
    held = HeldJob(leader.job("early").key, GrantToken(1, 9), started=True)
    stream, _ = leader.connect(hello(held=[held]))
    job, actions = leader.add("early")
    assert not book.grants(actions)
    assert book.settled(leader.receive(stream, Ended(held.key, held.grant, FinishReason.STOP))) == [job]


def test_a_held_job_that_was_granted_to_another_worker_meanwhile_is_called_back(leader, hello, book):
    job, _ = leader.add()
    first, _ = leader.connect(hello("w1"))
    old = GrantToken(1, 1)
    leader.lose(first)
    leader.connect(hello("w2"))
    _, actions = leader.connect(hello("w1", held=[HeldJob(job.key, old, started=False)]))
    assert book.messages(actions, Recall) == [Recall(job.key, old)]
    assert leader.num_leased == 1


# -- recall --------------------------------------------------------------------------------------------------------


@pytest.fixture
def uneven(leader, hello):
    """One worker full and with a job prefetched, nothing waiting, and then an idle worker."""
    full, _ = leader.connect(hello("full", max_num_seqs=1), demand=2)
    grants = [action.message for _ in range(2) for action in leader.add()[1]]
    leader.receive(full, Demand(0, 0, last_grant=2))
    leader.progress(full, grants[0], waiting=grants[1:])
    idle, _ = leader.connect(hello("idle"))
    return full, idle, grants


def test_a_prefetched_job_is_recalled_for_a_worker_with_room(leader, uneven, book):
    full, idle, grants = uneven
    assert book.messages(leader.tick(1.0), Recall) == [Recall(grants[1].key, grants[1].token)]
    assert not book.messages(leader.tick(1.0), Recall), "once is enough"
    actions = leader.receive(full, Returned(grants[1].key, grants[1].token, "recalled"))
    assert book.streams_granted(actions) == [idle]


def test_a_job_is_not_recalled_on_its_way_in(leader, uneven, book):
    assert not book.messages(leader.tick(0.5), Recall)


def test_a_job_is_not_recalled_for_the_worker_that_has_it(leader, book):
    stream, _ = leader.connect(demand=2)
    grant = book.grants(leader.add()[1])[0]
    leader.receive(stream, Demand(3, 100, grant.token.number))
    assert not book.messages(leader.tick(5.0), Recall)


def test_a_started_job_is_not_recalled(leader, uneven, book):
    full, _, grants = uneven
    leader.progress(full, *grants)
    assert not book.messages(leader.tick(5.0), Recall)


def test_nothing_is_recalled_while_jobs_wait(leader, uneven, hello, book):
    leader.add(num_prompt_tokens=50 * 16)
    leader.receive(uneven[1], Demand(4, 1))
    leader.add(num_prompt_tokens=50 * 16)
    assert leader.num_waiting == 1
    assert not book.messages(leader.tick(5.0), Recall)


# -- an epoch that was lost ------------------------------------------------------------------------------------------


def test_a_leader_gives_way_to_an_epoch_that_a_worker_has_heard_of(make_leader, hello, book):
    """It is a former leader, or the bucket of the epochs was lost: its grants would be refused for ever."""
    leader = make_leader(epoch=3)
    leader.add("a")
    _, actions = leader.connect(hello(newest_epoch=5), demand=0)
    assert actions == [GiveWay(to=5)]
    _, actions = leader.connect(hello("w2", newest_epoch=3))
    assert book.grants(actions)


def test_a_leader_gives_way_to_an_epoch_that_stands_in_a_log(leader, granted):
    stream, grant = granted
    actions = leader.receive(stream, Refused(grant.key, grant.token, conflict=False, newest_epoch=7))
    assert GiveWay(to=7) in actions
    assert (leader.num_leased, leader.num_waiting) == (0, 1)
