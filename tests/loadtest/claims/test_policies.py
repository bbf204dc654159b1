"""Policies on the mixed trace, and how unfairness is measured."""

from __future__ import annotations

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import JobKey, SamplingParams
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.core.queued_job import QueuedJob
from headway.core.sequence import Sequence
from loadtest.claims.policies import POLICIES, ServiceWatch, mixed_trace, policy_claim, to_markdown

FIFO, FAIR = (policy_claim(name, POLICIES[name], seeds=(1,)) for name in ("fifo", "weighted-fair"))


def queue_with(*tenants: str) -> JobQueue:
    queue = JobQueue(QueueConfig())
    for number, tenant in enumerate(tenants):
        queue.add(QueuedJob(JobKey(tenant, str(number)), number + 1, 0.0, 4, 4), now=0.0)
    return queue


def decode(number: int) -> StepPlan:
    """A step in which the sequence of that number gets one token, of weight 2."""
    sequence = Sequence(number, JobKey("any", "any"), SamplingParams(), [1, 1], 1, 0.0, num_computed_tokens=1)
    return StepPlan(1, (ScheduledChunk(sequence, 1, 1, is_sampled=True),))


def watch() -> ServiceWatch:
    return ServiceWatch(("bulk", "chat").__getitem__, QueueConfig())


def test_unfairness_is_how_far_service_drifts_while_both_wait():
    watching, both = watch(), queue_with("bulk", "chat")
    for number in (0, 0, 0, 1):
        watching(0.0, decode(number), both)
    assert watching.unfairness == 4, "from 1 token ahead to 3 ahead, of weight 2"


def test_service_while_one_tenant_has_nothing_waiting_is_nobodys_loss():
    watching = watch()
    for waiting in (queue_with("bulk"), queue_with("chat"), queue_with()):
        watching(0.0, decode(0), waiting)
    assert watching.unfairness == 0
    assert watching.service == {"bulk": 6.0, "chat": 0.0}


def test_a_new_stretch_of_waiting_does_not_remember_the_last():
    watching, both = watch(), queue_with("bulk", "chat")
    watching(0.0, decode(0), both)
    for _ in range(5):
        watching(0.0, decode(0), queue_with("bulk"))
    watching(0.0, decode(1), both)
    assert watching.unfairness == 0


def test_weighted_fair_keeps_its_bound_where_fifo_does_not():
    assert FAIR.unfairness.max <= FAIR.bound < FIFO.unfairness.min


def test_weighted_fair_spares_the_small_tenant_the_others_backlog_and_costs_no_throughput():
    assert FAIR.classes["short"].mean.max < FIFO.classes["short"].mean.min / 10
    assert FAIR.makespan.median < 1.02 * FIFO.makespan.median


def test_the_trace_is_the_same_for_every_policy():
    assert mixed_trace(3) == mixed_trace(3)
    assert QueuePolicy.SJF in POLICIES


def test_each_policy_is_a_row_and_only_the_fair_one_has_a_bound():
    _, rule, *rows = to_markdown([FIFO, FAIR]).splitlines()
    assert {row.count("|") for row in rows} == {rule.count("|")}
    assert ["bound" in row for row in rows] == [False, True]
