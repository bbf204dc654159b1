"""A job can be cancelled wherever it is, and the answer comes when its end is stored."""

from __future__ import annotations

import pytest

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import CancelOutcome, Send
from headway.core.lease_messages import CancelJob, HeldJob, Returned


def test_a_cancelled_waiting_job_is_ended_by_the_leader_and_answered_then(leader, book):
    job, _ = leader.add()
    actions = leader.leases.cancel(job.key)
    assert [end.finish_reason for end in book.ends(actions)] == [FinishReason.CANCELLED]
    assert not book.answers(actions)
    settled = leader.leases.ended_by_leader(job.key, FinishReason.CANCELLED)
    assert [answer.outcome for answer in book.answers(settled)] == [CancelOutcome.CANCELLED]
    assert book.settled(settled) == [job]


def test_a_cancelled_leased_job_is_ended_by_its_worker(leader, granted, book):
    stream, grant = granted
    assert leader.leases.cancel(grant.key) == [Send(stream, CancelJob(grant.key, grant.token, FinishReason.CANCELLED))]
    actions = leader.ended(stream, grant, FinishReason.CANCELLED)
    assert [answer.outcome for answer in book.answers(actions)] == [CancelOutcome.CANCELLED]


def test_a_job_that_ended_before_the_cancel_reached_it_is_answered_as_ended(leader, granted, book):
    stream, grant = granted
    leader.leases.cancel(grant.key)
    answer = book.answers(leader.ended(stream, grant, FinishReason.LENGTH))[0]
    assert (answer.outcome, answer.finish_reason) == (CancelOutcome.ENDED, FinishReason.LENGTH)


def test_a_cancel_reaches_a_worker_that_was_away(leader, granted, hello, book):
    stream, grant = granted
    leader.disconnect(stream)
    assert not leader.leases.cancel(grant.key)
    _, actions = leader.connect(hello(held=[HeldJob(grant.key, grant.token, True)]))
    assert [cancel.key for cancel in book.messages(actions, CancelJob)] == [grant.key]


@pytest.mark.parametrize("way", ["lost", "returned"])
def test_a_cancelled_job_that_comes_back_is_not_granted_again(leader, granted, hello, book, way):
    stream, grant = granted
    leader.leases.cancel(grant.key)
    lost = leader.lose(stream) if way == "lost" else leader.receive(stream, Returned(grant.key, grant.token, "drain"))
    assert [end.finish_reason for end in book.ends(lost)] == [FinishReason.CANCELLED]
    assert not book.grants(leader.connect(hello("w2"))[1])


def test_a_job_that_is_not_outstanding_cannot_be_cancelled(leader, book):
    answers = book.answers(leader.leases.cancel(JobKey("acme", "nobody")))
    assert [answer.outcome for answer in answers] == [CancelOutcome.NOT_FOUND]


def test_cancelling_twice_is_answered_once_for_all(leader, granted, book):
    stream, grant = granted
    leader.leases.cancel(grant.key)
    leader.leases.cancel(grant.key)
    assert len(book.answers(leader.ended(stream, grant, FinishReason.CANCELLED))) == 1


def test_a_leaders_end_that_is_reported_twice_settles_once(leader):
    job, _ = leader.add()
    leader.leases.cancel(job.key)
    assert leader.leases.ended_by_leader(job.key, FinishReason.CANCELLED)
    assert not leader.leases.ended_by_leader(job.key, FinishReason.CANCELLED)
