"""A day under the HorizontalPodAutoscaler: nobody waits long, little is taken back, and no job is interrupted.

The day is simulated (`simulation`); what the autoscaler reads it reads from the real external metrics API. These are
not the days on which the windows of the chart were chosen (docs/autoscaling.md), but others of the same load.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.hpa_simulator import (
    Behavior,
    Change,
    Hpa,
    Policy,
    Rules,
    Unit,
    num_reversals,
    replicas_for_average,
    replicas_for_pods,
)
from tests.cluster.simulation import MAX_REPLICAS, SCALERS, day_of_load, run_day

BACKLOG = "workers needed"
UNSEEN_SEEDS = (101, 102, 103)
UP = Rules(0.0, (Policy(Unit.PODS, 4, 15.0), Policy(Unit.PERCENT, 100, 15.0)))
AT_ONCE = Rules(0.0, (Policy(Unit.PERCENT, 100, 15.0),))


@pytest.fixture(scope="module")
def days():
    arrivals = day_of_load(seed=UNSEEN_SEEDS[0])

    async def run():
        return {name: await run_day(name, arrivals) for name in SCALERS}

    return asyncio.run(run())


def test_on_the_backlog_jobs_are_started_in_time_all_day(days):
    assert days[BACKLOG].share_within_slo >= 0.99


def test_on_the_backlog_no_worker_is_started_in_vain(days):
    assert days[BACKLOG].num_started_in_vain == 0


def test_on_the_backlog_the_fleet_does_not_flap(days):
    """Jobs come by chance, so now and then a worker is missed soon after it was let go: once in 50 changes at most."""

    async def others():
        return [await run_day(BACKLOG, day_of_load(seed=seed)) for seed in UNSEEN_SEEDS[1:]]

    every = [days[BACKLOG], *asyncio.run(others())]
    assert sum(day.num_flaps for day in every) <= sum(len(day.changes) for day in every) / 50
    assert max(day.num_flaps for day in every) <= 1


@pytest.mark.parametrize("name", list(SCALERS))
def test_every_job_ends_whatever_scales(days, name):
    assert days[name].num_ended == days[name].num_jobs


def test_a_scale_down_interrupts_no_job(days):
    assert any(change.num_pods < 0 for change in days[BACKLOG].changes)
    assert days[BACKLOG].num_handed_back == 0


def test_waiting_jobs_alone_start_too_late_and_flap(days):
    assert days["waiting jobs"].share_within_slo < days[BACKLOG].share_within_slo
    assert days["waiting jobs"].num_flaps > 0


def test_gpu_utilisation_cannot_tell_a_busy_worker_from_a_full_one(days):
    """A worker computes all the time however few jobs it has, so the fleet grows without need."""
    assert days["GPU utilisation"].pod_hours > 1.3 * days[BACKLOG].pod_hours
    assert max(days["GPU utilisation"].replicas) == MAX_REPLICAS


# -- the algorithm itself, by the examples of its documentation ------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "target", "current", "replicas"),
    [
        (4.2, 1.0, 1, 5),
        (4.2, 1.0, 4, 4),
        (4.5, 1.0, 4, 5),
        (3.7, 1.0, 4, 4),
        (3.5, 1.0, 4, 4),
        (3.0, 1.0, 4, 3),
        (0, 1.0, 4, 0),
    ],
)
def test_an_average_value_is_shared_by_the_replicas_within_the_tolerance(total, target, current, replicas):
    assert replicas_for_average(total, target, current) == replicas


def test_pods_that_are_not_ready_damp_the_way_up():
    assert replicas_for_pods([100.0, 100.0], 0, 50.0, 2) == 4
    assert replicas_for_pods([100.0, 100.0], 2, 50.0, 4) == 4
    assert replicas_for_pods([10.0, 10.0], 2, 50.0, 4) == 1


def test_down_goes_by_the_highest_recommendation_of_the_window():
    hpa = Hpa(1, 20, Behavior(UP, Rules(300.0, (Policy(Unit.PERCENT, 100, 15.0),))))
    assert hpa.decide(0.0, 10, 10) == 10
    assert hpa.decide(100.0, 10, 3) == 10
    assert hpa.decide(290.0, 10, 5) == 10
    assert hpa.decide(301.0, 10, 3) == 5
    assert hpa.decide(600.0, 5, 3) == 3


def test_up_goes_at_once_but_by_no_more_than_the_largest_policy():
    hpa = Hpa(1, 100, Behavior(UP, AT_ONCE))
    assert hpa.decide(0.0, 1, 50) == 5
    assert hpa.decide(15.0, 5, 50) == 10
    assert hpa.decide(30.0, 10, 50) == 20


def test_down_goes_pod_by_pod():
    hpa = Hpa(1, 100, Behavior(UP, Rules(0.0, (Policy(Unit.PODS, 1, 60.0),))))
    assert hpa.decide(0.0, 8, 2) == 7
    assert hpa.decide(15.0, 7, 2) == 7
    assert hpa.decide(61.0, 7, 2) == 6


def test_flapping_is_a_change_that_is_taken_back_soon():
    assert num_reversals([Change(0, 2), Change(100, -1), Change(5000, 1)], 600) == 1
