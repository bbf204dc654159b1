"""Schedules on a virtual clock, against ones worked out by hand."""

from __future__ import annotations

import pytest

from headway.core.errors import JobRejected
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from loadtest.simulated.cost import StepCost
from loadtest.simulated.worker import SimulatedJob, SimulatedSettings, simulate


def settings(
    batching: Batching = Batching.CONTINUOUS,
    *,
    max_num_seqs: int = 4,
    num_pages: int = 100,
    policy: QueuePolicy = QueuePolicy.FIFO,
    cost: StepCost | None = None,
) -> SimulatedSettings:
    scheduler = SchedulerConfig(batching=batching, max_num_seqs=max_num_seqs, prefix_sharing=PrefixSharing.OFF)
    chosen = SimulatedSettings(num_pages, scheduler=scheduler, queue=QueueConfig(policy=policy))
    return chosen if cost is None else SimulatedSettings(num_pages, scheduler=scheduler, cost=cost)


def jobs(*num_output_tokens: int, num_prompt_tokens: int = 4) -> list[SimulatedJob]:
    return [SimulatedJob(num_prompt_tokens, number) for number in num_output_tokens]


def ends(recording) -> list[float]:
    return [line.ended_at for line in recording.timelines]


def test_every_job_gets_exactly_its_tokens_at_the_pace_of_the_steps():
    recording = simulate(jobs(20, 50, 100, 10), settings())
    assert all(line.is_complete for line in recording.timelines)
    assert ends(recording) == [20, 50, 100, 10]
    assert [line.first_token_at for line in recording.timelines] == [1, 1, 1, 1]


def test_a_static_batch_fills_the_share_of_its_slots_that_its_lengths_say():
    recording = simulate(jobs(20, 50, 100, 10), settings(Batching.STATIC))
    assert recording.steps.slot_utilisation == pytest.approx(180 / 400)


def test_a_late_job_waits_for_the_whole_static_batch_and_joins_a_continuous_one_at_once():
    late = [*jobs(20, 50, 100, 10), SimulatedJob(4, 8, due_at=5.0)]
    static = simulate(late, settings(Batching.STATIC))
    continuous = simulate(late, settings(max_num_seqs=5))
    assert static.timelines[4].e2e_seconds == 103
    assert continuous.timelines[4].e2e_seconds == 8


def test_the_clock_jumps_to_the_next_arrival_when_nothing_is_to_be_done():
    recording = simulate([SimulatedJob(4, 2, due_at=0.0), SimulatedJob(4, 2, due_at=1000.0)], settings())
    assert ends(recording) == [2, 1002]
    assert len(recording.steps.steps) == 4


def test_jobs_are_taken_in_the_order_of_the_policy():
    recording = simulate(jobs(9, 8, 2, 4), settings(max_num_seqs=1, policy=QueuePolicy.SJF))
    assert ends(recording) == [23, 14, 2, 6]


def test_no_job_is_taken_that_memory_has_no_page_for():
    recording = simulate(jobs(12, 12, num_prompt_tokens=20), settings(num_pages=2))
    assert ends(recording) == [12, 24]
    assert recording.steps.since_first("num_preemptions_total") == 0


def test_a_step_costs_what_it_computes():
    cost = StepCost(fixed_seconds=1.0, prefill_token_seconds=0.1, decode_seconds=10.0, context_token_seconds=100.0)
    recording = simulate(jobs(2, num_prompt_tokens=5), settings(cost=cost))
    assert [step.seconds for step in recording.steps.steps] == [1.5, 1 + 10 + 6 * 100]


def test_a_job_that_could_never_run_is_refused():
    with pytest.raises(JobRejected):
        simulate(jobs(2, num_prompt_tokens=5000), settings())


def test_what_does_not_fit_yet_waits_in_the_queue_where_a_shorter_job_may_still_pass_it():
    waiting = [*jobs(12, 12, num_prompt_tokens=20), SimulatedJob(20, 2, due_at=0.5)]
    recording = simulate(waiting, settings(num_pages=2, policy=QueuePolicy.SJF))
    assert ends(recording) == [12, 26, 14]


def test_tenants_are_charged_while_their_jobs_run():
    """A long job of one tenant runs; the other's short ones go before all but the first of its own."""
    both = [SimulatedJob(1, 40, tenant="a"), *(SimulatedJob(1, 4, 1.0, tenant) for tenant in "aabb")]
    recording = simulate(both, settings(max_num_seqs=2, policy=QueuePolicy.WEIGHTED_FAIR))
    assert ends(recording)[1:] == [5, 17, 9, 13]
