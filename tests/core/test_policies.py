"""The order of fifo and sjf: static ranks that stand for an order that changes with waiting."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.job import JobKey
from headway.core.queue import JobQueue, QueueConfig, QueuedJob, QueuePolicy, WorkerRoom

ROOM = WorkerRoom("w", num_pages=1000, page_size=16, num_pages_total=1000)


def job(number: int, arrival: float = 0.0, tenant: str = "acme", prompt: int = 10, **fields: int) -> QueuedJob:
    fields.setdefault("max_tokens", 10)
    return QueuedJob(JobKey(tenant, f"a{number}"), number, arrival, prompt, **fields)


def queue_of(config: QueueConfig, *jobs: QueuedJob) -> JobQueue:
    queue = JobQueue(config)
    for each in jobs:
        queue.add(each, each.arrival_seconds)
    return queue


def order(queue: JobQueue, now: float = 1e6) -> list[int]:
    taken = iter(lambda: queue.take(now, ROOM), None)
    return [each.stream_sequence for each in taken]


def fifo(**settings: object) -> QueueConfig:
    return QueueConfig(policy=QueuePolicy.FIFO, **settings)


def sjf(**settings: object) -> QueueConfig:
    return QueueConfig(policy=QueuePolicy.SJF, **settings)


def test_fifo_is_the_order_of_the_stream() -> None:
    assert order(queue_of(fifo(), job(2), job(1), job(3))) == [1, 2, 3]


def test_fifo_keeps_the_order_of_the_stream_when_the_broker_clock_runs_backwards() -> None:
    assert order(queue_of(fifo(), job(1, 100.0), job(2, 40.0), job(3, 60.0))) == [1, 2, 3]


def test_a_higher_priority_goes_first() -> None:
    assert order(queue_of(fifo(), job(1), job(2, priority=2), job(3, priority=1))) == [2, 3, 1]


def test_waiting_promotes_by_one_priority_after_promote_seconds() -> None:
    config = fifo(promote_seconds=30)
    assert order(queue_of(config, job(1, 0.0), job(2, 29.0, priority=1))) == [2, 1]
    assert order(queue_of(config, job(1, 0.0), job(2, 31.0, priority=1))) == [1, 2]
    assert order(queue_of(config, job(1, 0.0), job(2, 89.0, priority=3), job(3, 91.0, priority=3))) == [2, 1, 3]


@pytest.mark.parametrize("limits", [{"acme": 0}, {"*": 0}])
def test_a_tenant_cannot_raise_its_priority_above_its_limit(limits: dict[str, int]) -> None:
    config = fifo(tenant_max_priority={"globex": 100} | limits)
    assert order(queue_of(config, job(1), job(2, priority=9), job(3, tenant="globex", priority=1))) == [3, 1, 2]


def test_the_shortest_predicted_job_goes_first() -> None:
    config = sjf(input_token_weight=1.0, output_token_weight=2.0)
    jobs = job(1, prompt=100, max_tokens=10), job(2, prompt=30, max_tokens=90), job(3, prompt=99, max_tokens=10)
    assert order(queue_of(config, *jobs)) == [3, 1, 2]


def test_an_expectation_makes_a_job_shorter() -> None:
    assert order(queue_of(sjf(), job(1, max_tokens=100), job(2, max_tokens=100, expected_tokens=5))) == [2, 1]


def test_a_long_job_ages_past_short_ones_that_come_later() -> None:
    config = sjf(aging_rate=10.0, input_token_weight=1.0, output_token_weight=0.0)
    long = job(1, 0.0, prompt=1000)
    assert order(queue_of(config, long, job(2, 98.0, prompt=10), job(3, 100.0, prompt=10))) == [2, 1, 3]


@dataclass(frozen=True)
class Arrival:
    gap: float
    prompt: int
    output: int
    priority: int
    num_takes: int
    """How many jobs are taken before it comes."""


ARRIVALS = st.lists(
    st.builds(
        Arrival, st.floats(0, 20), st.integers(1, 500), st.integers(1, 500), st.integers(0, 3), st.integers(0, 3)
    ),
    min_size=1,
    max_size=40,
)


@dataclass(frozen=True)
class History:
    jobs: list[QueuedJob]
    taken_at: dict[QueuedJob, int]
    """Number of the take, from 0."""
    came_at: dict[QueuedJob, int]
    """Takes before it came."""

    def overtook(self, early: QueuedJob, late: QueuedJob) -> bool:
        """Whether ``early`` was taken first although ``late`` was waiting then."""
        return self.came_at[late] <= self.taken_at[early] < self.taken_at[late]


def play(config: QueueConfig, arrivals: list[Arrival]) -> History:
    queue, now, history = JobQueue(config), 0.0, History([], {}, {})
    for number, arrival in enumerate(arrivals):
        for _ in range(arrival.num_takes):
            if taken := queue.take(now, ROOM):
                history.taken_at[taken] = len(history.taken_at)
        now += arrival.gap
        history.jobs.append(
            job(number, now, prompt=arrival.prompt, max_tokens=arrival.output, priority=arrival.priority)
        )
        history.came_at[history.jobs[-1]] = len(history.taken_at)
        queue.add(history.jobs[-1], now)
    while taken := queue.take(now, ROOM):
        history.taken_at[taken] = len(history.taken_at)
    return history


@given(ARRIVALS)
def test_fifo_never_reorders_within_a_priority(arrivals: list[Arrival]) -> None:
    history = play(fifo(), arrivals)
    for level in range(4):
        taken = [each.stream_sequence for each in history.taken_at if each.priority == level]
        assert taken == sorted(taken)


@given(ARRIVALS)
def test_fifo_lets_a_higher_priority_overtake_only_within_its_head_start(arrivals: list[Arrival]) -> None:
    config = fifo(promote_seconds=10)
    history = play(config, arrivals)
    for late in history.jobs:
        for early in history.jobs:
            if history.overtook(early, late):
                head_start = (early.priority - late.priority) * config.promote_seconds
                assert early.arrival_seconds - late.arrival_seconds <= head_start


@given(ARRIVALS)
def test_sjf_never_lets_a_job_be_overtaken_by_one_that_came_too_late(arrivals: list[Arrival]) -> None:
    config = sjf(aging_rate=50.0)
    history = play(config, arrivals)
    for late in history.jobs:
        for early in history.jobs:
            if history.overtook(early, late):
                head_start = (work(config, late) - work(config, early)) / config.aging_rate
                assert early.arrival_seconds <= late.arrival_seconds + head_start + 1e-6


def work(config: QueueConfig, each: QueuedJob) -> float:
    return config.work(each.num_prompt_tokens, each.max_tokens)


@given(ARRIVALS)
def test_sjf_bounds_the_wait_by_the_work_there_and_the_work_that_comes_in_time(arrivals: list[Arrival]) -> None:
    """One worker, one job at a time, 100 weighted tokens per second."""
    config, speed = sjf(aging_rate=50.0), 100.0
    queue, now, started = JobQueue(config), 0.0, {}
    jobs, arrival = [], 0.0
    for number, each in enumerate(arrivals):
        arrival += each.gap
        jobs.append(job(number, arrival, prompt=each.prompt, max_tokens=each.output))
    coming = list(jobs)
    while coming or len(queue):
        while coming and coming[0].arrival_seconds <= now:
            queue.add(coming.pop(0), now)
        taken = queue.take(now, ROOM)
        if taken is None:
            now = coming[0].arrival_seconds
            continue
        started[taken] = now
        now += work(config, taken) / speed
    for each in jobs:
        latest = each.arrival_seconds + work(config, each) / config.aging_rate
        ahead = [other for other in jobs if other is not each and other.arrival_seconds <= latest]
        unfinished = [other for other in ahead if started[other] + work(config, other) / speed > each.arrival_seconds]
        bound = sum(work(config, other) for other in unfinished) / speed
        assert started[each] - each.arrival_seconds <= bound + 1e-6
