"""Totals and times of waiting jobs, while jobs leave from anywhere."""

from __future__ import annotations

from headway.core.backlog import Backlog, JobHeap
from headway.core.job import JobKey
from headway.core.queued_job import QueuedJob


def job(name: str, sequence: int, arrival: float = 0.0) -> QueuedJob:
    return QueuedJob(JobKey("acme", name), sequence, arrival, 10, 10, num_predicted_tokens=5)


def test_the_first_is_the_earliest_that_still_waits() -> None:
    jobs = [job(str(number), number) for number in range(4)]
    waiting = {each.key: each for each in jobs}
    heap = JobHeap(waiting)
    for time, each in zip((3.0, 1.0, 2.0, 4.0), jobs, strict=True):
        heap.push(time, each)
    for gone in (1, 2, 0, 3):
        assert heap.first() is jobs[gone]
        del waiting[jobs[gone].key]
    assert heap.first() is None


def test_a_job_that_has_the_name_of_one_that_left_is_not_taken_for_it() -> None:
    """It would stand at the head with the time of the other, before jobs that are older than itself."""
    waiting: dict[JobKey, QueuedJob] = {}
    backlog = Backlog(waiting)
    former, older, namesake = job("a", 1, 1.0), job("b", 2, 2.0), job("a", 3, 9.0)
    for each in (former, older):
        waiting[each.key] = each
        backlog.add(each)
    backlog.remove(waiting.pop(former.key))
    waiting[namesake.key] = namesake
    backlog.add(namesake)
    assert backlog.stats(10.0, 16).oldest_wait_seconds == 8.0


def test_jobs_that_left_take_no_memory_however_many_they_were() -> None:
    """Behind one that stays for ever, so that none of them ever comes up."""
    waiting: dict[JobKey, QueuedJob] = {}
    heap = JobHeap(waiting)
    patient = job("patient", 0)
    waiting[patient.key] = patient
    heap.push(0.0, patient)
    for number in range(1, 5000):
        passing = job(str(number), number)
        waiting[passing.key] = passing
        heap.push(float(number), passing)
        del waiting[passing.key]
    assert len(heap._entries) < 200
    assert heap.first() is patient


def test_those_that_stay_while_others_come_and_go_are_found_in_order() -> None:
    staying = [job(f"stays{number}", number) for number in range(100)]
    waiting = {each.key: each for each in staying}
    heap = JobHeap(waiting)
    for number, each in enumerate(staying):
        heap.push(1000.0 - number, each)
        for passing in (job(f"{number}-{i}", 1000 + 10 * number + i) for i in range(10)):
            heap.push(0.0, passing)
    found = []
    while (first := heap.first()) is not None:
        found.append(first)
        del waiting[first.key]
    assert found == staying[::-1]
