from __future__ import annotations

from itertools import pairwise

import pytest

from loadtest.workloads.arrivals import Arrivals, Schedule
from loadtest.workloads.plan import ClosedLoop
from loadtest.workloads.requests import Request, WorkloadError, load_workload


def requests(*gaps: float) -> list[Request]:
    return [Request((5, 6, 7), num_output_tokens=4, gap=gap) for gap in gaps]


def test_a_burst_comes_all_at_once():
    assert Schedule().plan(requests(1.0, 7.0), None) == [0.0, 0.0]


@pytest.mark.parametrize("arrivals", [Arrivals.POISSON, Arrivals.GAMMA])
def test_random_arrivals_are_the_gaps_of_the_requests_added_up_and_divided_by_the_rate(arrivals):
    assert Schedule(arrivals).plan(requests(1.0, 0.5, 2.5), rate=2.0) == [0.5, 0.75, 2.0]


def test_the_default_gaps_come_at_the_rate_that_is_asked_for():
    moments = Schedule(Arrivals.POISSON).plan(load_workload(), rate=2.0)
    assert moments == sorted(moments)
    assert len(moments) / moments[-1] == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("rate", [None, 0.0, -1.0])
def test_random_arrivals_need_a_rate(rate):
    with pytest.raises(WorkloadError, match="poisson arrivals need a rate above 0"):
        Schedule(Arrivals.POISSON).plan(requests(1.0), rate)


def test_a_ramp_sends_what_its_mean_rate_makes_of_its_time_and_then_keeps_its_last_rate():
    ramp = Schedule(Arrivals.RAMP, growth=3.0, ramp_seconds=10.0)
    # From 1 to 3 per second in 10 s: 20 requests; 3 per second after that.
    moments = ramp.plan(requests(*[1.0] * 26), rate=1.0)
    assert moments[19] == pytest.approx(10.0)
    assert moments[22] - moments[19] == pytest.approx(1.0)
    assert moments[0] == pytest.approx(0.95, abs=0.05)
    gaps = [after - before for before, after in pairwise(moments[:20])]
    assert gaps == sorted(gaps, reverse=True)


def test_a_ramp_that_does_not_rise_is_a_poisson_process():
    flat = Schedule(Arrivals.RAMP, growth=1.0, ramp_seconds=10.0).plan(requests(1.0, 0.5, 40.0), rate=2.0)
    assert flat == pytest.approx(Schedule(Arrivals.POISSON).plan(requests(1.0, 0.5, 40.0), rate=2.0))


def test_a_request_with_a_time_of_its_own_keeps_it_and_takes_no_gap_of_the_others():
    mixed = [*requests(1.0), Request((1,), 1, gap=5.0, due_at=7.0), *requests(1.0)]
    assert Schedule(Arrivals.POISSON).plan(mixed, rate=1.0) == [1.0, 7.0, 2.0]
    assert Schedule().plan(mixed, None) == [0.0, 7.0, 0.0]


def test_arrivals_of_a_trace_need_a_time_for_every_request():
    with pytest.raises(WorkloadError, match="a time for every request"):
        Schedule(Arrivals.TRACE).plan(requests(1.0), None)


def test_the_gaps_of_a_closed_loop_are_its_clients_pauses():
    plan = Schedule(Arrivals.CLOSED, num_clients=2, think_seconds=4.0).plan(requests(1.0, 0.5), None)
    assert plan == ClosedLoop(2, [4.0, 2.0], [None, None])


def test_only_a_rate_that_nobody_gave_must_be_measured():
    assert Schedule(Arrivals.GAMMA).measures_capacity
    assert not Schedule(Arrivals.GAMMA, rate=1.0).measures_capacity
    assert not Schedule(Arrivals.CLOSED).measures_capacity
