"""Every job ends exactly once, whatever is lost, repeated or late."""

from __future__ import annotations

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import DeadReason, Settle, WriteDead
from headway.core.lease_messages import Demand, Ended, HeldJob, Refused, Returned
from headway.core.lease_terms import LeaseTerms

# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_job_that_ended_is_settled(leader, granted, book):
    stream, grant = granted
    assert [job.key for job in book.settled(leader.ended(stream, grant))] == [grant.key]
    assert (leader.num_leased, leader.num_waiting) == (0, 0)


def test_an_end_that_is_reported_twice_settles_once(leader, granted, book):
    stream, grant = granted
    leader.ended(stream, grant)
    assert not leader.ended(stream, grant)


def test_an_end_under_an_older_grant_leaves_the_newer_one_alone(leader, granted, hello, book):
    stream, old = granted
    leader.receive(stream, Returned(old.key, old.token, "drained"))
    other, actions = leader.connect(hello("w2"))
    new = book.grants(actions)[0]
    assert new.token > old.token
    assert not leader.ended(stream, old)
    assert len(book.settled(leader.ended(other, new))) == 1


def test_a_late_return_leaves_the_newer_grant_of_the_same_worker_alone(leader, granted, book):
    stream, old = granted
    late = Returned(old.key, old.token, "drained")
    leader.receive(stream, late)
    new = book.grants(leader.receive(stream, Demand(1, 100, old.token.number)))[0]
    assert not leader.receive(stream, late)
    assert len(book.settled(leader.ended(stream, new))) == 1


def test_another_worker_cannot_end_a_job_that_it_does_not_hold(leader, granted, hello):
    _, grant = granted
    other, _ = leader.connect(hello("w2"))
    assert not leader.ended(other, grant)
    assert leader.num_leased == 1


def test_the_length_of_an_ended_job_is_learnt(make_leader):
    leader = make_leader()
    stream, _ = leader.connect()
    for _ in range(20):
        _, actions = leader.add(max_tokens=1000)
        grant = actions[0].message
        leader.receive(stream, Ended(grant.key, grant.token, FinishReason.STOP, 7))
        leader.receive(stream, Demand(4, 100, grant.token.number))
    job, _ = leader.add(max_tokens=1000)
    assert job.num_predicted_tokens < 100


# -- returns and losses --------------------------------------------------------------------------------------------


def test_a_returned_job_is_granted_again_before_later_ones_and_does_not_count(leader, granted, hello, book):
    stream, grant = granted
    leader.receive(stream, Demand(0, 0, grant.token.number))
    leader.add("later")
    leader.receive(stream, Returned(grant.key, grant.token, "drained"))
    _, actions = leader.connect(hello("w2"))
    regrants = book.grants(actions)
    assert [regrant.key.id for regrant in regrants] == ["a", "later"]
    assert regrants[0].num_lost_attempts == 0


def test_a_job_has_waited_since_it_came_back(leader, hello):
    """And not since its arrival: a worker had it for most of that time."""
    job, _ = leader.add("a")
    arrived = leader.now
    stream, _ = leader.connect(hello("w1"))
    assert job.waiting_since == arrived
    leader.tick(5.0)
    leader.lose(stream)
    assert job.waiting_since == leader.now == arrived + 5.0 + leader.terms.lease_seconds


def test_a_worker_that_gave_a_job_back_gets_none_until_it_asks_anew(leader, granted, book):
    stream, grant = granted
    assert not book.grants(leader.receive(stream, Returned(grant.key, grant.token, "cannot now")))
    assert book.grants(leader.receive(stream, Demand(1, 100, grant.token.number)))


def test_the_jobs_of_a_worker_that_vanished_wait_out_its_lease_and_go_to_another(leader, granted, hello, book):
    stream, grant = granted
    leader.connect(hello("w2"))
    leader.disconnect(stream)
    assert not book.grants(leader.tick(leader.terms.lease_seconds - 1))
    regrant = book.grants(leader.tick(1))
    assert not regrant, "the other worker was silent for as long"
    _, actions = leader.connect(hello("w3"))
    assert [(it.key, it.num_lost_attempts) for it in book.grants(actions)] == [(grant.key, 1)]


def test_a_silent_worker_loses_its_jobs_and_its_stream(leader, granted, book):
    stream, _ = granted
    actions = leader.tick(leader.terms.lease_seconds)
    assert [drop.stream for drop in book.drops(actions)] == [stream]
    assert (leader.num_leased, leader.num_waiting) == (0, 1)


def test_a_heartbeat_keeps_the_lease(leader, granted):
    stream, grant = granted
    for _ in range(10):
        leader.progress(stream, grant)
        assert not leader.tick(leader.terms.lease_seconds - 1)
    assert leader.num_leased == 1


def test_a_worker_that_reconnects_within_its_lease_keeps_its_jobs(leader, granted, hello, book):
    stream, grant = granted
    leader.disconnect(stream)
    leader.tick(leader.terms.lease_seconds - 1)
    stream, actions = leader.connect(hello(held=[HeldJob(grant.key, grant.token, True)]))
    assert not book.grants(actions)
    assert len(book.settled(leader.ended(stream, grant))) == 1


def test_a_grant_that_was_lost_with_its_stream_is_granted_again_without_counting(leader, granted, hello, book):
    stream, grant = granted
    leader.disconnect(stream)
    _, actions = leader.connect(hello(held=[]))
    assert [(it.key, it.num_lost_attempts) for it in book.grants(actions)] == [(grant.key, 0)]


def test_a_job_that_a_workers_report_misses_is_taken_back(leader, granted, book):
    stream, grant = granted
    leader.receive(stream, Demand(0, 0, grant.token.number))
    leader.progress(stream)
    assert (leader.num_leased, leader.num_waiting) == (0, 1)


def test_a_report_from_before_the_grant_arrived_takes_nothing_back(leader, granted):
    stream, _ = granted
    leader.progress(stream)
    assert leader.num_leased == 1


def test_a_worker_taken_for_lost_that_comes_back_goes_on_and_nothing_was_lost(leader, granted, hello, book):
    stream, grant = granted
    leader.lose(stream)
    stream, actions = leader.connect(hello(held=[HeldJob(grant.key, grant.token, True)]))
    assert not book.grants(actions)
    assert leader.leases.find(grant.key).job.num_lost_attempts == 0
    assert len(book.settled(leader.ended(stream, grant))) == 1


def test_the_newest_stream_of_a_worker_wins(leader, granted, hello, book):
    old, grant = granted
    new, actions = leader.connect(hello(held=[HeldJob(grant.key, grant.token, True)]))
    assert [drop.stream for drop in book.drops(actions)] == [old]
    assert not leader.ended(old, grant)
    leader.disconnect(old)
    assert len(book.settled(leader.ended(new, grant))) == 1


def test_a_refusal_without_conflict_brings_the_job_back(leader, granted):
    stream, grant = granted
    leader.receive(stream, Refused(grant.key, grant.token, conflict=False))
    assert (leader.num_leased, leader.num_waiting) == (0, 1)


def test_a_conflict_is_buried_and_settled(leader, granted):
    stream, grant = granted
    dead, settle = leader.receive(stream, Refused(grant.key, grant.token, conflict=True))
    assert isinstance(dead, WriteDead)
    assert dead.reason is DeadReason.CONFLICT
    assert isinstance(settle, Settle)


# -- poison --------------------------------------------------------------------------------------------------------


def lose_repeatedly(leader, hello, times):
    for number in range(times):
        stream, _ = leader.connect(hello(f"victim{number}"))
        leader.lose(stream)


def test_a_job_that_lost_two_attempts_is_granted_alone(leader, hello, book):
    job, _ = leader.add("poison")
    lose_repeatedly(leader, hello, 2)
    leader.add("bystander")
    stream, actions = leader.connect(hello("w9"))
    grants = book.grants(actions)
    assert [(grant.key, grant.alone) for grant in grants] == [(job.key, True)]
    assert [grant.key.id for grant in book.grants(leader.ended(stream, grants[0]))] == ["bystander"]


def test_a_busy_worker_empties_for_a_suspect_and_the_others_go_on(leader, hello, book):
    leader.add("poison")
    lose_repeatedly(leader, hello, 2)
    leader.leases.cancel(JobKey("acme", "poison"))
    leader.leases.ended_by_leader(JobKey("acme", "poison"), FinishReason.CANCELLED)
    first, actions = leader.connect(hello("w1"))
    second, _ = leader.connect(hello("w2"))
    busy = [leader.add() for _ in range(2)]
    suspect = leader.job("suspect", num_lost_attempts=2)
    actions = leader.leases.add("m", suspect, leader.now)
    assert not book.grants(actions)
    streams = [book.streams_granted(leader.add()[1])[0] for _ in range(3)]
    assert len(set(streams)) == 1, "one of the two gets nothing more"
    (emptying,) = {first, second} - set(streams)
    own = next(action for _, acts in busy for action in acts if action.stream == emptying).message
    granted = book.grants(leader.ended(emptying, own))
    assert [(grant.key.id, grant.alone) for grant in granted] == [("suspect", True)]


def test_a_job_out_of_attempts_is_dead_and_ends_with_an_error(leader, hello, book):
    job, _ = leader.add("poison")
    lose_repeatedly(leader, hello, 2)
    stream, _ = leader.connect(hello("w9"))
    actions = leader.lose(stream)
    assert [dead.reason for dead in book.dead(actions)] == [DeadReason.ATTEMPTS_EXHAUSTED]
    end = book.ends(actions)[0]
    assert (end.finish_reason, end.error.code) == (FinishReason.ERROR, "attempts_exhausted")
    assert book.settled(leader.leases.ended_by_leader(job.key, FinishReason.ERROR)) == [job]
    assert leader.leases.find(job.key) is None


def test_attempts_that_only_the_log_knows_of_count(leader, granted, book):
    """After a takeover the leader starts at zero; the worker reads the log and says so."""
    stream, grant = granted
    leader.receive(stream, Returned(grant.key, grant.token, "lost before", num_lost_attempts=2))
    regrant = book.grants(leader.receive(stream, Demand(4, 100, grant.token.number)))[0]
    assert (regrant.alone, regrant.num_lost_attempts) == (True, 2)


def test_any_number_of_returns_leaves_nothing_in_flight(make_leader, book):
    leader = make_leader(terms=LeaseTerms())
    stream, _ = leader.connect()
    _, actions = leader.add()
    for _ in range(100):
        grant = book.grants(actions)[0]
        leader.receive(stream, Returned(grant.key, grant.token, "again"))
        actions = leader.receive(stream, Demand(4, 100, grant.token.number))
    leader.ended(stream, book.grants(actions)[0])
    assert (leader.num_leased, leader.num_waiting) == (0, 0)


# -- repeats and conflicts in the stream ---------------------------------------------------------------------------


def test_the_same_message_again_changes_nothing(leader):
    job, _ = leader.add("a")
    assert not leader.leases.add("m", job, leader.now)
    assert leader.num_waiting == 1


def test_a_repeated_job_is_settled_and_the_first_one_untouched(leader, book):
    leader.add("a")
    repeat, actions = leader.add("a")
    assert book.settled(actions) == [repeat]
    assert leader.num_waiting == 1


def test_another_job_under_an_id_that_is_taken_is_buried(leader, book):
    leader.add("a")
    other, actions = leader.add("a", payload_hash="another")
    assert [dead.job for dead in book.dead(actions)] == [other]
    assert book.settled(actions) == [other]
    assert leader.num_waiting == 1


# -- the bytes of a tenant -------------------------------------------------------------------------------------------


def test_the_bytes_of_a_tenant_are_those_of_its_jobs_that_have_not_ended(leader, book):
    leader.add("waits", num_bytes=10)
    leader.add("runs", num_bytes=5)
    assert leader.leases.num_outstanding_bytes("acme") == 15
    stream, actions = leader.connect()
    grants = {grant.key.id: grant for grant in book.grants(actions)}
    leader.receive(stream, Returned(grants["waits"].key, grants["waits"].token, "drained"))
    assert leader.leases.num_outstanding_bytes("acme") == 15
    leader.ended(stream, grants["runs"])
    assert leader.leases.num_outstanding_bytes("acme") == 10
    leader.leases.cancel(grants["waits"].key)
    leader.leases.ended_by_leader(grants["waits"].key, FinishReason.CANCELLED)
    assert leader.leases.num_outstanding_bytes("acme") == 0


def test_a_job_that_comes_again_is_counted_once(leader):
    job, _ = leader.add("a", num_bytes=10)
    leader.leases.add("m", job, leader.now)
    leader.add("a", num_bytes=10)
    assert leader.leases.num_outstanding_bytes("acme") == 10
    assert leader.leases.num_outstanding_bytes("another") == 0
