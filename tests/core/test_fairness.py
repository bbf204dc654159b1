"""Weighted fairness: whose turn it is, and who is charged what."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headway.core.job import JobKey
from headway.core.queue import JobQueue, QueueConfig, QueuedJob, QueuePolicy, WorkerRoom

ROOM = WorkerRoom("w", num_pages=1000, page_size=16, num_pages_total=1000)


def job(number: int, tenant: str, prompt: int = 10, **fields: int) -> QueuedJob:
    fields.setdefault("max_tokens", 10)
    return QueuedJob(JobKey(tenant, f"a{number}"), number, float(number), prompt, **fields)


def fair_queue(*jobs: QueuedJob, **settings: object) -> JobQueue:
    queue = JobQueue(QueueConfig(policy=QueuePolicy.WEIGHTED_FAIR, **settings))
    for each in jobs:
        queue.add(each, 0.0)
    return queue


def take(queue: JobQueue) -> QueuedJob:
    taken = queue.take(0.0, ROOM)
    assert taken is not None
    return taken


def tenants_taken(queue: JobQueue, num_takes: int) -> str:
    """The tenants of the next takes, of which only the prompts (10 tokens each) are charged."""
    return "".join(take(queue).key.tenant for _ in range(num_takes))


def alternating(num_jobs: int) -> list[QueuedJob]:
    return [job(number, "ab"[number % 2]) for number in range(num_jobs)]


def test_tenants_take_turns_however_many_jobs_one_of_them_has() -> None:
    queue = fair_queue(*(job(n, "a") for n in range(20)), *(job(n, "b") for n in range(20, 23)))
    assert tenants_taken(queue, 6) == "ababab"


def test_a_tenant_of_twice_the_weight_gets_twice_the_service() -> None:
    queue = fair_queue(*alternating(60), tenant_weights={"a": 2.0})
    assert Counter(tenants_taken(queue, 30)) == {"a": 20, "b": 10}


def test_the_default_weight_can_be_set_for_all_tenants_not_listed() -> None:
    queue = fair_queue(*alternating(60), tenant_weights={"*": 4.0, "b": 2.0})
    assert Counter(tenants_taken(queue, 30)) == {"a": 20, "b": 10}


def test_priority_orders_the_jobs_of_a_tenant_but_buys_no_other_tenants_share() -> None:
    jobs = [job(0, "a"), job(1, "a", priority=9), job(2, "b"), job(3, "b"), job(4, "b")]
    queue = fair_queue(*jobs)
    assert [take(queue).stream_sequence for _ in range(5)] == [1, 2, 0, 3, 4]


def test_being_idle_earns_no_credit() -> None:
    queue = fair_queue(*(job(n, "a") for n in range(100)))
    tenants_taken(queue, 50)
    for number in range(100, 120):
        queue.add(job(number, "b"), 0.0)
    assert Counter(tenants_taken(queue, 20)) == {"a": 10, "b": 10}


def test_nor_does_it_when_everybody_was_idle() -> None:
    queue = fair_queue(*(job(n, "a") for n in range(50)))
    tenants_taken(queue, 50)
    for number in range(100, 140):
        queue.add(job(number, "ba"[number % 2]), 0.0)
    assert Counter(tenants_taken(queue, 20)) == {"a": 10, "b": 10}


def test_a_tenant_whose_only_job_waits_for_a_reserved_worker_is_still_waiting() -> None:
    queue = fair_queue(job(0, "a", prompt=500), *(job(n, "b") for n in range(1, 30)), max_bypass=0)
    small = WorkerRoom("w", num_pages=2, page_size=16, num_pages_total=100)
    assert queue.take(0.0, small) is None
    other = WorkerRoom("v", num_pages=2, page_size=16, num_pages_total=2)
    for _ in range(20):
        assert queue.take(0.0, other) is not None
    queue.add(job(100, "a"), 0.0)
    assert queue.counters()["a"] == 0.0


def test_prompts_are_charged_at_grant_and_cached_tokens_refunded() -> None:
    queue = fair_queue(job(1, "a", prompt=30), input_token_weight=1.0, output_token_weight=2.0)
    granted = take(queue)
    assert queue.counters() == {"a": 30.0}
    queue.report(granted, 30, 16, 0)
    assert queue.counters() == {"a": 14.0}
    queue.report(granted, 30, 16, 5)
    assert queue.counters() == {"a": 24.0}


def test_an_estimated_prompt_is_put_right_by_the_first_report() -> None:
    queue = fair_queue(job(1, "a", prompt=30))
    queue.report(take(queue), 44, 0, 0)
    assert queue.counters() == {"a": 44.0}


def test_a_late_report_of_a_job_that_waits_again_changes_nothing() -> None:
    queue = fair_queue(job(1, "a", prompt=30))
    granted = take(queue)
    queue.add(granted, 0.0)
    queue.report(granted, 50, 0, 7)
    assert queue.counters() == {"a": 30.0}
    assert granted.num_tokens == 30


def test_pages_that_a_job_filled_itself_are_not_refunded_on_its_next_attempt() -> None:
    queue = fair_queue(job(1, "a", prompt=32))
    granted = take(queue)
    queue.report(granted, 32, 0, 4)
    queue.add(granted, 0.0)
    queue.report(take(queue), 32, 32, 4)
    assert queue.counters() == {"a": 40.0}


REPORTS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50), st.booleans()), max_size=20)


@given(REPORTS)
def test_no_token_is_charged_twice_whatever_is_repeated_lost_or_returned(reports: list[tuple[int, int, bool]]) -> None:
    queue = fair_queue(job(1, "a", prompt=20))
    granted = take(queue)
    for num_cached, num_output, returned in reports:
        queue.report(granted, 20, num_cached, num_output)
        if returned:
            queue.add(granted, 0.0)
            assert take(queue) is granted
    num_output = max((output for _, output, _ in reports), default=0)
    queue.settle(granted, num_output)
    first_output = next((index for index, (_, output, _) in enumerate(reports) if output), len(reports))
    num_cached = max((cached for cached, _, _ in reports[: first_output + 1]), default=0)
    assert queue.counters()["a"] == 20 - num_cached + 2 * num_output


def test_a_job_that_an_earlier_leader_granted_is_charged_only_for_what_comes_after() -> None:
    queue = fair_queue()
    queue.restore_counters({"a": 700.0})
    held = job(1, "a", prompt=300)
    queue.add(held, 0.0)
    queue.discard(held.key)
    queue.report(held, 300, 0, 200)
    assert queue.counters() == {"a": 700.0}
    queue.report(held, 300, 0, 210)
    assert queue.counters() == {"a": 720.0}


def test_counters_survive_a_takeover_and_newcomers_get_no_credit_from_it() -> None:
    queue = fair_queue(*alternating(40))
    tenants_taken(queue, 20)
    queue.report(take(queue), 10, 0, 50)
    successor = fair_queue()
    successor.restore_counters(queue.counters())
    for number in range(100, 160):
        successor.add(job(number, "abc"[number % 3]), 0.0)
    assert Counter(tenants_taken(successor, 25)) == {"a": 1, "b": 12, "c": 12}


def test_counters_leave_out_idle_tenants_that_a_return_would_lift_anyway() -> None:
    queue = fair_queue(job(0, "z"), *(job(n, "a") for n in range(1, 20)))
    tenants_taken(queue, 10)
    assert set(queue.counters()) == {"a"}
