from __future__ import annotations

import pytest

from loadtest.workloads.arrivals import Arrivals, Schedule
from loadtest.workloads.overrides import Overrides
from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.scenario import Scenario
from loadtest.workloads.scenario_files import NamedScenario


def scenario(arrivals: object = "burst") -> NamedScenario:
    fields = {"num_requests": 9, "seed": 3, "arrivals": arrivals, "parts": [{"prompt": 4, "output": 8}]}
    return NamedScenario("test", Scenario.model_validate(fields), [None])


def schedule(given: object, **changes: object) -> Schedule:
    return Overrides(**changes).apply(scenario(given)).scenario.arrivals.schedule


def test_what_is_not_given_stays():
    assert Overrides().apply(scenario()) == scenario()


def test_numbers_take_the_place_of_the_scenarios():
    changed = Overrides(num_requests=4, seed=0).apply(scenario()).scenario
    assert (changed.num_requests, changed.seed) == (4, 0)


def test_a_rate_or_a_load_takes_the_place_of_either_and_the_kind_stays():
    bursty = {"kind": "gamma", "cv": 3, "load": 0.6}
    assert schedule(bursty, rate=2.0) == Schedule(Arrivals.GAMMA, 2.0)
    assert schedule({"kind": "poisson", "rate": 9}, load=0.5) == Schedule(Arrivals.POISSON, None, 0.5)


def test_other_arrivals_take_the_place_of_the_scenarios():
    assert schedule({"kind": "closed", "clients": 2}, arrivals=Arrivals.POISSON, rate=2.0).rate == 2.0
    assert schedule("poisson", arrivals=Arrivals.BURST) == Schedule()
    closed = schedule({"kind": "closed", "clients": 2, "think_seconds": 5}, arrivals=Arrivals.CLOSED, num_clients=7)
    assert (closed.num_clients, closed.think_seconds) == (7, 5)


@pytest.mark.parametrize(
    ("arrivals", "changes", "complaint"),
    [
        ("burst", {"rate": 2.0}, "arrivals are burst"),
        ({"kind": "ramp", "rate": 1, "to_rate": 2, "over_seconds": 3}, {"load": 0.5}, "arrivals are ramp"),
        ("poisson", {"num_clients": 3}, "--arrivals closed"),
    ],
)
def test_a_number_that_the_arrivals_do_not_have_is_refused_with_the_remedy(arrivals, changes, complaint):
    with pytest.raises(WorkloadError, match=complaint):
        schedule(arrivals, **changes)
