"""A job that does not fit is passed over for a while, and then a worker is kept for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.job import JobKey
from headway.core.queue import JobQueue, QueueConfig, QueuedJob, QueuePolicy, WorkerRoom

NUM_PAGES = 100


def job(number: int, pages: int, **fields: float) -> QueuedJob:
    """``pages`` of 16 tokens are what it needs to start."""
    return QueuedJob(JobKey("acme", f"a{number}"), number, 0.0, pages * 16 - 1, 10, **fields)


def room(num_pages: int, worker: str = "w", num_pages_total: int = NUM_PAGES) -> WorkerRoom:
    return WorkerRoom(worker, num_pages, 16, num_pages_total)


def queue_of(*jobs: QueuedJob, **settings: object) -> JobQueue:
    queue = JobQueue(QueueConfig(**({"max_bypass": 3} | settings)))
    for each in jobs:
        queue.add(each, 0.0)
    return queue


def take(queue: JobQueue, worker_room: WorkerRoom, now: float = 0.0) -> int | None:
    """The number of the job that the worker gets."""
    taken = queue.take(now, worker_room)
    return None if taken is None else taken.stream_sequence


def big_and_small(**settings: object) -> JobQueue:
    """Job 1 needs 50 pages, the twenty behind it 1 page each."""
    return queue_of(job(1, pages=50), *(job(number, pages=1) for number in range(2, 22)), **settings)


def test_a_job_fits_if_its_prompt_and_one_more_token_do() -> None:
    assert take(queue_of(job(1, pages=5)), room(5)) == 1
    assert take(queue_of(job(1, pages=5)), room(4)) is None
    assert take(queue_of(job(1, pages=5)), room(0)) is None


def test_a_returned_job_needs_room_for_its_output_too() -> None:
    queue = queue_of(job(1, pages=5))
    returned = queue.take(0.0, room(5))
    assert returned is not None
    queue.report(returned, 79, 0, 16)
    queue.add(returned, 0.0)
    assert take(queue, room(5)) is None
    assert take(queue, room(6)) == 1


def test_a_job_that_does_not_fit_is_passed_over_max_bypass_times_and_then_keeps_the_worker() -> None:
    queue = big_and_small(max_bypass=3)
    assert [take(queue, room(10)) for _ in range(5)] == [2, 3, 4, None, None]
    assert take(queue, room(49)) is None
    assert take(queue, room(50)) == 1
    assert take(queue, room(10)) == 5


def test_with_max_bypass_0_nobody_passes() -> None:
    queue = big_and_small(max_bypass=0)
    assert take(queue, room(10)) is None
    assert take(queue, room(50)) == 1


def test_only_one_worker_is_kept_and_the_others_go_on_with_small_jobs() -> None:
    queue = big_and_small(max_bypass=0)
    assert take(queue, room(10, "w")) is None
    assert [take(queue, room(10, "v")) for _ in range(20)] == list(range(2, 22))
    assert take(queue, room(10, "w")) is None


def test_a_reserved_job_takes_any_worker_on_which_it_fits_first() -> None:
    queue = big_and_small(max_bypass=0)
    assert take(queue, room(10, "w")) is None
    assert take(queue, room(60, "v")) == 1
    assert take(queue, room(10, "w")) == 2


def test_a_job_larger_than_every_worker_blocks_nobody_and_is_not_counted() -> None:
    queue = queue_of(job(1, pages=101), *(job(number, pages=1) for number in range(2, 12)), max_bypass=0)
    assert [take(queue, room(10)) for _ in range(10)] == list(range(2, 12))
    assert queue.get(JobKey("acme", "a1")).num_bypasses == 0


def test_behind_a_job_that_fits_no_worker_a_big_one_still_gets_its_turn() -> None:
    queue = queue_of(job(1, pages=101), job(2, pages=50), job(3, pages=1), max_bypass=0)
    assert take(queue, room(10)) is None
    assert take(queue, room(50)) == 2


def test_a_small_worker_is_never_kept_for_a_job_that_only_a_big_one_can_hold() -> None:
    queue = big_and_small(max_bypass=0)
    small, big = room(10, "small", num_pages_total=40), room(10, "big")
    assert take(queue, small) == 2
    assert take(queue, big) is None
    assert take(queue, small) == 3


def test_a_job_as_large_as_a_worker_gets_it_when_it_is_empty() -> None:
    queue = queue_of(job(1, pages=NUM_PAGES), job(2, pages=1), max_bypass=0)
    assert take(queue, room(NUM_PAGES - 1)) is None
    assert take(queue, room(NUM_PAGES)) == 1


def test_the_next_worker_is_kept_when_the_first_is_gone() -> None:
    queue = big_and_small(max_bypass=0)
    assert take(queue, room(10, "w")) is None
    queue.release_worker("w")
    assert take(queue, room(10, "v")) is None
    assert take(queue, room(10, "w")) == 2


def test_a_reservation_lapses_and_the_count_begins_anew() -> None:
    queue = big_and_small(max_bypass=1, max_reserve_seconds=60)
    assert [take(queue, room(10), now) for now in (0.0, 0.0, 59.0)] == [2, None, None]
    assert [take(queue, room(10), now) for now in (60.0, 60.0)] == [3, None]


@pytest.mark.parametrize("way_out", ["discard", "expire"])
def test_a_reserved_job_that_leaves_sets_its_worker_free(way_out: str) -> None:
    queue = queue_of(job(1, pages=50, expires_at=10.0), job(2, pages=1), max_bypass=0)
    assert take(queue, room(10)) is None
    if way_out == "discard":
        assert queue.discard(JobKey("acme", "a1")) is not None
    else:
        assert len(queue.expire(10.0)) == 1
    assert take(queue, room(10), 10.0) == 2


SIZES = st.lists(st.integers(1, NUM_PAGES), min_size=1, max_size=40)


@pytest.mark.parametrize("policy", list(QueuePolicy))
@given(sizes=SIZES, late_sizes=SIZES, num_workers=st.integers(1, 3), max_bypass=st.integers(0, 4))
def test_every_job_that_some_worker_can_hold_is_taken_exactly_once_whatever_keeps_coming(
    policy: QueuePolicy, sizes: list[int], late_sizes: list[int], num_workers: int, max_bypass: int
) -> None:
    """Small jobs keep coming while the big ones wait; a job runs for as many steps as it has pages, at most 7."""
    jobs = [job(number, pages) for number, pages in enumerate(sizes)]
    queue = queue_of(*jobs, policy=policy, max_bypass=max_bypass, aging_rate=50.0)
    running: list[list[tuple[int, int]]] = [[] for _ in range(num_workers)]
    taken: list[int] = []
    for step in range(3000):
        if step < 300:
            queue.add(job(1000 + step, pages=min(late_sizes[step % len(late_sizes)], 3)), float(step))
        for number, held in enumerate(running):
            held[:] = [(pages, until) for pages, until in held if until > step]
            free = NUM_PAGES - sum(pages for pages, _ in held)
            while granted := queue.take(float(step), room(free, f"w{number}")):
                pages = granted.num_pages(16)
                taken.append(granted.stream_sequence)
                held.append((min(pages, free), step + 1 + pages % 7))
                free = NUM_PAGES - sum(pages for pages, _ in held)
        if not len(queue) and step >= 300:
            break
    assert sorted(taken) == [*range(len(jobs)), *range(1000, 1300)]
