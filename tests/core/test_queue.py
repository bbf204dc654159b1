"""Jobs on their way through the queue: in, out, back, expired, discarded, and what is counted meanwhile."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import BrokerError, SettingError
from headway.core.job import JobKey
from headway.core.queue import JobQueue, QueueConfig, QueuedJob, QueuePolicy, WorkerRoom
from headway.core.stats import QueueStats

ROOM = WorkerRoom("w", num_pages=1000, page_size=16, num_pages_total=1000)
every_policy = pytest.mark.parametrize("policy", list(QueuePolicy))


def job(number: int, tenant: str = "acme", prompt: int = 10, max_tokens: int = 10, **fields: object) -> QueuedJob:
    return QueuedJob(JobKey(tenant, f"a{number}"), number, float(number), prompt, max_tokens, **fields)


def queue_of(*jobs: QueuedJob, **settings: object) -> JobQueue:
    queue = JobQueue(QueueConfig(**settings))
    for each in jobs:
        queue.add(each, 0.0)
    return queue


def numbers_taken(queue: JobQueue, now: float = 0.0) -> list[int]:
    return [each.stream_sequence for each in iter(lambda: queue.take(now, ROOM), None)]


@every_policy
def test_a_returned_job_goes_back_to_its_own_place(policy: QueuePolicy) -> None:
    queue = queue_of(*(job(number) for number in range(5)), policy=policy)
    first = queue.take(0.0, ROOM)
    queue.report(first, 10, 0, 7)
    queue.settle(job(99), 1)
    queue.add(first, 50.0)
    assert numbers_taken(queue) == [0, 1, 2, 3, 4]


@every_policy
def test_nothing_that_is_learnt_meanwhile_moves_a_returned_job(policy: QueuePolicy) -> None:
    """Its prompt was longer than it looked, and other jobs of its tenant were shorter."""
    queue = queue_of(*(job(number) for number in range(5)), policy=policy)
    first = queue.take(0.0, ROOM)
    queue.report(first, 300, 0, 0)
    queue.settle(job(99), 1)
    queue.add(first, 50.0)
    assert numbers_taken(queue) == [0, 1, 2, 3, 4]


def test_a_returned_job_keeps_its_prediction() -> None:
    queue = queue_of(job(0, max_tokens=100))
    granted = queue.take(0.0, ROOM)
    queue.settle(job(99), 1)
    queue.add(granted, 50.0)
    assert queue.stats(50.0).num_backlog_tokens == 10 + 100


@every_policy
def test_output_tokens_are_counted_once_whatever_is_repeated(policy: QueuePolicy) -> None:
    queue = queue_of(job(0), policy=policy)
    granted = queue.take(0.0, ROOM)
    for num_tokens in (3, 3, 2, 7):
        queue.report(granted, 10, 0, num_tokens)
    queue.settle(granted, 8)
    assert queue.num_output_tokens_total == 8


@every_policy
def test_what_another_leader_has_counted_of_a_job_is_not_counted_again(policy: QueuePolicy) -> None:
    queue, adopted = queue_of(policy=policy), job(0)
    queue.report(adopted, 10, 0, 500)
    assert queue.num_output_tokens_total == 0
    queue.report(adopted, 10, 0, 503)
    assert queue.num_output_tokens_total == 3


@every_policy
def test_a_discarded_job_is_never_taken(policy: QueuePolicy) -> None:
    queue = queue_of(job(0), job(1), job(2), policy=policy)
    assert queue.discard(JobKey("acme", "a1")).stream_sequence == 1
    assert queue.discard(JobKey("acme", "a1")) is None
    assert numbers_taken(queue) == [0, 2]


def test_jobs_of_two_tenants_may_have_the_same_id() -> None:
    queue = queue_of(job(1, "acme"), QueuedJob(JobKey("globex", "a1"), 2, 0.0, 10, 10))
    queue.discard(JobKey("acme", "a1"))
    assert numbers_taken(queue) == [2]


def test_an_expired_job_is_never_taken_and_handed_out_once() -> None:
    queue = queue_of(job(0, expires_at=5.0), job(1, expires_at=9.0), job(2))
    assert numbers_taken(queue, now=5.0) == [1, 2]
    assert len(queue) == 1
    assert JobKey("acme", "a0") in queue
    assert [each.stream_sequence for each in queue.expire(5.0)] == [0]
    assert queue.expire(5.0) == []
    assert JobKey("acme", "a0") not in queue


def test_an_expired_job_can_still_be_cancelled_until_it_is_handed_out() -> None:
    queue = queue_of(job(0, expires_at=5.0))
    assert queue.take(5.0, ROOM) is None
    assert queue.discard(JobKey("acme", "a0")) is not None
    assert queue.expire(5.0) == []


def test_a_granted_job_does_not_expire_in_the_queue() -> None:
    queue = queue_of(job(0, expires_at=5.0))
    granted = queue.take(0.0, ROOM)
    assert queue.expire(9.0) == []
    queue.add(granted, 9.0)
    assert queue.expire(9.0) == [granted]


def test_payloads_beyond_the_byte_budget_are_dropped_and_the_jobs_kept() -> None:
    queue = queue_of(*(job(number, payload=b"x" * 40) for number in range(3)), max_payload_bytes_held=100)
    assert queue.stats(0.0).num_payload_bytes == 80
    assert [queue.take(0.0, ROOM).payload is None for _ in range(3)] == [False, False, True]
    assert queue.stats(0.0).num_payload_bytes == 0


def test_a_fetched_payload_is_attached_only_if_it_is_the_one_that_was_queued() -> None:
    dropped = job(1, payload_hash=hashlib.sha256(b"right").hexdigest())
    with pytest.raises(BrokerError):
        dropped.attach(b"wrong")
    dropped.attach(b"right")
    assert dropped.payload == b"right"


def test_stats_tell_tenants_tokens_pages_and_the_oldest_wait() -> None:
    queue = queue_of(
        job(3, prompt=30, max_tokens=10), job(4, prompt=16, max_tokens=16), job(5, "globex", expected_tokens=1)
    )
    assert queue.stats(now=10.0, page_size=16) == QueueStats(
        num_waiting=3,
        num_waiting_by_tenant={"acme": 2, "globex": 1},
        num_backlog_tokens=40 + 32 + 11,
        num_backlog_pages=3 + 2 + 1,
        oldest_wait_seconds=7.0,
    )
    queue.take(10.0, ROOM)
    assert queue.stats(now=10.0, page_size=16).num_backlog_pages == 3
    assert queue.stats(now=10.0, page_size=32).num_backlog_pages == 2
    assert queue.stats(now=10.0).oldest_wait_seconds == 6.0


def test_lengths_of_ended_jobs_predict_the_next_ones() -> None:
    queue = queue_of()
    queue.settle(job(1), 30)
    queue.settle(job(2), None)
    queue.settle(job(3), 2, is_whole=False)
    queue.add(job(4, prompt=10, max_tokens=100), 0.0)
    assert queue.stats(0.0).num_backlog_tokens == 10 + 30


def test_a_job_is_predicted_to_be_at_least_as_long_as_it_is() -> None:
    queue = queue_of(job(1, max_tokens=100, expected_tokens=5))
    granted = queue.take(0.0, ROOM)
    queue.report(granted, 10, 0, 40)
    assert granted.num_backlog_tokens == 10 + 40


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("promote_seconds", 0.0),
        ("aging_rate", float("nan")),
        ("max_bypass", -1),
        ("tenant_weights", {"acme": 0.0}),
        ("tenant_weights", {"ACME": 1.0}),
        ("tenant_max_priority", {"acme": -1}),
        ("tenant_max_priority", {"a.b": 1}),
    ],
)
def test_a_setting_that_cannot_hold_is_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(SettingError) as refused:
        QueueConfig(**{setting: value})
    assert refused.value.setting == setting


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "return", "discard", "expire", "end"]),
        st.integers(0, 30),
        st.sampled_from(["acme", "globex"]),
    ),
    max_size=80,
)


@every_policy
@given(operations=OPERATIONS)
def test_every_job_is_in_one_place_and_the_totals_are_those_of_the_waiting_jobs(
    policy: QueuePolicy, operations: list[tuple[str, int, str]]
) -> None:
    queue = queue_of(policy=policy, max_bypass=2)
    waiting: dict[JobKey, QueuedJob] = {}
    granted: list[QueuedJob] = []
    for now, (operation, number, tenant) in enumerate(operations):
        match operation:
            case "add":
                new = job(now, tenant, prompt=1 + number * 16, expires_at=now + number * 3.0 if number % 3 else None)
                waiting[new.key] = new
                queue.add(new, float(now))
            case "take":
                room = WorkerRoom(f"w{number % 2}", number, 16, 25)
                if taken := queue.take(float(now), room):
                    assert waiting.pop(taken.key) is taken
                    assert room.fits(taken)
                    assert not taken.is_expired(now)
                    granted.append(taken)
            case "return" if granted:
                returned = granted.pop(number % len(granted))
                queue.report(returned, returned.num_prompt_tokens, number, number)
                waiting[returned.key] = returned
                queue.add(returned, float(now))
            case "discard" if waiting:
                key = list(waiting)[number % len(waiting)]
                assert queue.discard(key) is waiting.pop(key)
            case "expire":
                for expired in queue.expire(float(now)):
                    assert waiting.pop(expired.key).is_expired(now)
                assert not any(each.is_expired(now) for each in waiting.values())
            case "end" if granted:
                queue.settle(granted.pop(), number)
        assert len(queue) == len(waiting)
        assert all(queue.get(key) is each for key, each in waiting.items())
        check_totals(queue, [each for each in waiting.values() if not each.is_expired(now)], float(now))


def check_totals(queue: JobQueue, waiting: list[QueuedJob], now: float) -> None:
    stats = queue.stats(now)
    assert stats.num_waiting == len(waiting)
    assert stats.num_backlog_tokens == sum(each.num_backlog_tokens for each in waiting)
    assert stats.num_backlog_pages == sum(each.num_pages(16) for each in waiting)
    assert stats.num_waiting_by_tenant == Counter(each.key.tenant for each in waiting)
    assert all(stats.num_waiting_by_tenant.values()), "no tenant stays when its jobs have left"
    oldest = min((each.arrival_seconds for each in waiting), default=now)
    assert stats.oldest_wait_seconds == now - oldest
