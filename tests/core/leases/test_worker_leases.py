"""What a worker holds, and what it could take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import Demand, Ended, Grant, HeldJob, Returned, Welcome, WorkerLoad
from headway.core.records import GrantToken
from headway.core.stats import PageStats, SchedulerStats
from headway.core.worker_leases import GrantVerdict, WorkerFacts, WorkerLeases

FACTS = WorkerFacts("inc", "pod-0", "m", page_size=16, num_pages=100, max_num_seqs=4)


def grant(number: int, id: str = "a", epoch: int = 1, num_bytes: int = 4, alone: bool = False) -> Grant:
    key, token = JobKey("acme", id), GrantToken(epoch, number)
    return Grant(key, token, number, b"x" * num_bytes, arrival_seconds=0.0, queue_seconds=0.0, alone=alone)


def stats(num_running: int = 0, num_waiting: int = 0, admissible: int = 100, waiting_pages: int = 0) -> SchedulerStats:
    return SchedulerStats(num_running, num_waiting, waiting_pages, admissible, PageStats(100, 100, 0, 0), 0, 0, 0, 0)


@pytest.fixture
def leases():
    return WorkerLeases(FACTS, prefetch=2)


def test_a_grant_is_started_once(leases):
    assert leases.accept(grant(1)) is GrantVerdict.START
    assert leases.accept(grant(1)) is GrantVerdict.STALE


def test_a_grant_of_a_former_leader_is_stale(leases):
    assert leases.welcome(Welcome(5, 15.0))
    assert leases.accept(grant(99, epoch=4)) is GrantVerdict.STALE
    assert leases.held_keys == ()


def test_a_former_leader_is_not_welcome(leases):
    assert leases.welcome(Welcome(5, 15.0))
    assert not leases.welcome(Welcome(4, 15.0))
    assert leases.welcome(Welcome(5, 15.0)), "the same one may come back"


def test_a_job_that_runs_here_goes_on_under_its_newer_grant(leases):
    leases.accept(grant(1))
    assert leases.accept(grant(2)) is GrantVerdict.RENEWED
    assert leases.ended(grant(2).key, FinishReason.STOP, 3) == Ended(
        grant(2).key, GrantToken(1, 2), FinishReason.STOP, 3
    )


def test_only_the_first_way_out_of_a_job_is_told(leases):
    leases.accept(grant(1))
    assert leases.returned(grant(1).key, "drained") is not None
    assert leases.ended(grant(1).key, FinishReason.STOP) is None
    assert leases.refused(grant(1).key, conflict=False) is None


def test_a_recall_of_an_older_grant_is_not_for_the_newer_one(leases):
    leases.accept(grant(1))
    leases.accept(grant(2))
    assert not leases.holds(grant(1).key, grant(1).token)
    assert leases.holds(grant(2).key, grant(2).token)


def test_an_idle_worker_offers_all_its_pages_and_prefetch_on_top_of_its_slots(leases):
    assert leases.demand(stats(admissible=90)) == Demand(6, 100, 0)


def test_a_worker_without_an_engine_asks_for_nothing(leases):
    leases.accept(grant(3))
    assert leases.demand(None) == Demand(0, 0, 3)


def test_granted_jobs_count_before_the_engine_knows_them(leases):
    """A payload of 64 bytes is taken for 17 tokens: two pages with the one that comes next."""
    leases.accept(grant(1, num_bytes=64))
    assert leases.demand(stats()) == Demand(5, 98, 1)


def test_a_job_in_the_engine_is_counted_once(leases):
    leases.accept(grant(1, num_bytes=64))
    leases.submitted(grant(1).key)
    assert leases.demand(stats(num_waiting=1, waiting_pages=2)) == Demand(5, 98, 1)
    assert leases.demand(stats(num_running=1, admissible=97)) == Demand(5, 97, 1)


def test_a_job_counts_before_the_stats_of_a_step_tell_of_it(leases):
    """They are those of the last step, and the engine has had the job for less than that."""
    leases.accept(grant(1))
    leases.submitted(grant(1).key)
    assert leases.demand(stats()).num_sequences == 5


def test_a_job_that_ended_counts_until_the_engine_has_dropped_it(leases):
    leases.accept(grant(1))
    leases.submitted(grant(1).key)
    leases.ended(grant(1).key, FinishReason.CANCELLED)
    assert leases.demand(stats(num_running=1)).num_sequences == 5
    assert leases.demand(stats()).num_sequences == 6


def test_a_full_worker_demands_nothing(leases):
    for number in range(1, 7):
        leases.accept(grant(number, id=f"job{number}"))
    assert leases.demand(stats()).num_sequences == 0


def test_a_busy_worker_rounds_its_pages_down_so_that_growing_sequences_change_little():
    leases = WorkerLeases(replace(FACTS, num_pages=10_000), prefetch=2)
    leases.accept(grant(1))
    leases.submitted(grant(1).key)
    pages = [leases.demand(stats(num_running=1, admissible=9_000 - step)).num_pages for step in range(128)]
    assert len(set(pages)) <= 2
    assert all(0 <= 9_000 - step - told < 9_000 / 64 for step, told in enumerate(pages))


def test_few_pages_and_those_of_an_idle_worker_are_told_exactly():
    leases = WorkerLeases(replace(FACTS, num_pages=10_001), prefetch=2)
    assert leases.demand(stats()).num_pages == 10_001
    leases.accept(grant(1))
    leases.submitted(grant(1).key)
    assert leases.demand(stats(num_running=1, admissible=127)).num_pages == 127
    assert leases.demand(stats(num_running=1, waiting_pages=200)).num_pages == 0


def test_a_worker_that_drains_demands_nothing_and_hands_back_what_still_comes(leases):
    leases.stop()
    assert leases.demand(stats()) == Demand(0, 0, 0)
    assert leases.accept(grant(1)) is GrantVerdict.STOPPING
    assert leases.returned(grant(1).key, "drained") == Returned(grant(1).key, grant(1).token, "drained")


def test_nothing_is_asked_for_beside_a_job_that_runs_alone(leases):
    leases.accept(grant(1, alone=True))
    assert leases.demand(stats()) == Demand(0, 0, 1)


def test_a_hello_says_what_is_held_and_begins_a_new_count_of_grants(leases):
    leases.accept(grant(1, id="a"))
    leases.accept(grant(2, id="b"))
    leases.report(grant(2, id="b").key, 10, 0, 1)
    hello = leases.hello()
    assert hello.held == (
        HeldJob(JobKey("acme", "a"), GrantToken(1, 1), False),
        HeldJob(JobKey("acme", "b"), GrantToken(1, 2), True),
    )
    assert leases.demand(stats()).last_grant == 0


def test_progress_lists_every_job_that_is_held(leases):
    leases.accept(grant(1, id="a"))
    leases.accept(grant(2, id="b"))
    leases.report(JobKey("acme", "b"), 10, 4, 7)
    jobs = leases.progress(WorkerLoad(1, 1, 90, 0.02)).jobs
    assert [(job.key.id, job.started, job.num_output_tokens) for job in jobs] == [("a", False, 0), ("b", True, 7)]
    assert jobs[1].num_cached_tokens == 4


def test_a_worker_without_an_engine_demands_nothing(leases):
    assert leases.demand(None) == Demand(0, 0, 0)


def test_a_new_engines_pages_are_said_in_the_next_hello(leases):
    leases.engine_restarted(replace(FACTS, num_pages=50))
    assert leases.hello().num_pages == 50
    assert leases.demand(stats()).num_pages == 50


def test_a_worker_says_of_which_epoch_it_has_heard(leases):
    assert leases.hello().newest_epoch == 0
    leases.welcome(Welcome(5, 15.0))
    assert not leases.welcome(Welcome(4, 15.0))
    assert leases.hello().newest_epoch == 5
