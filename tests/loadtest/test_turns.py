"""Who runs when, with which arrivals: on systems that only write down what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from headway.core.job import FinishReason
from loadtest.errors import BenchError
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.turns import HEADWAY, Turns
from loadtest.workloads.arrivals import Arrivals, Schedule
from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request

REQUESTS = tuple(Request((1, 2), num_output_tokens=1, gap=gap) for gap in (1.0, 2.0, 1.0))


@dataclass
class Paced:
    """Takes so many seconds for each request, one after the other."""

    name: str
    seconds: float
    turns: list[str]
    plans: list[Plan] = field(default_factory=list)
    requests: list[list[Request]] = field(default_factory=list)
    reason: FinishReason = FinishReason.LENGTH
    facts: dict[str, str] = field(default_factory=dict)
    stop: BaseException | None = None
    """What happens once it has run ``num_left`` times more."""
    num_left: int = 0

    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        if self.stop is not None and not self.num_left:
            raise self.stop
        self.num_left -= 1
        self.turns.append(self.name)
        self.plans.append(plan)
        self.requests.append(list(requests))
        due_at = [0.0] * len(requests) if isinstance(plan, ClosedLoop) else plan
        timelines = [Timeline(due, request.num_output_tokens) for request, due in zip(requests, due_at, strict=True)]
        now = 0.0
        for line in timelines:
            now = max(now, line.due_at) + self.seconds
            line.receive(1, now)
            line.end(self.reason, now)
        return Recording(timelines, StepLog(), {})


def turns_of(schedule: Schedule) -> tuple[Turns, Paced, Paced, list[str]]:
    order: list[str] = []
    ours, theirs = Paced(HEADWAY, 1.0, order), Paced("vllm", 2.0, order)
    return Turns({HEADWAY: ours, "vllm": theirs}, REQUESTS, schedule, lambda stage: None), ours, theirs, order


def test_systems_alternate():
    turns, _, _, order = turns_of(Schedule())
    measured = turns.take(2)
    assert order == [HEADWAY, "vllm"] * 2
    assert {name: len(runs) for name, runs in measured.runs.items()} == {HEADWAY: 2, "vllm": 2}
    assert measured.bursts == measured.at_their_rate == {}


def test_a_rate_is_the_same_for_all():
    turns, ours, theirs, _ = turns_of(Schedule(Arrivals.POISSON, rate=2.0))
    measured = turns.take(1)
    assert ours.plans == theirs.plans == [[0.5, 1.5, 2.0]]
    assert [runs[0]["rate"] for runs in measured.runs.values()] == [2.0, 2.0]


def test_a_load_is_taken_from_a_burst_of_the_same_round_and_headway_gets_both_rates():
    turns, ours, theirs, order = turns_of(Schedule(Arrivals.POISSON, load=0.5))
    measured = turns.take(1)
    assert order == [HEADWAY, "vllm", HEADWAY, "vllm", HEADWAY]
    assert ours.plans == [[0.0] * 3, [2.0, 6.0, 8.0], [4.0, 12.0, 16.0]]
    assert theirs.plans == [[0.0] * 3, [4.0, 12.0, 16.0]]
    assert measured.runs[HEADWAY][0]["rate"] == 0.5
    assert measured.at_their_rate["vllm"][0]["rate"] == measured.runs["vllm"][0]["rate"] == 0.25
    assert measured.bursts[HEADWAY][0]["rate"] is None


def test_only_the_median_run_of_each_system_keeps_what_is_long():
    turns, _, _, _ = turns_of(Schedule(Arrivals.POISSON, load=0.5))
    measured = turns.take(3).with_few_details()
    for runs in measured.runs.values():
        assert ["requests" in run for run in runs].count(True) == 1
    for runs in (*measured.bursts.values(), *measured.at_their_rate.values()):
        assert not any("requests" in run or "timeline" in run for run in runs)


def test_a_closed_loop_is_the_same_for_all():
    turns, ours, theirs, _ = turns_of(Schedule(Arrivals.CLOSED, num_clients=2, think_seconds=1.0))
    turns.take(1)
    assert ours.plans == theirs.plans == [ClosedLoop(2, [1.0, 2.0, 1.0], [None] * 3)]


def test_no_run_asks_what_an_earlier_one_has_where_systems_remember():
    turns, ours, theirs, _ = turns_of(Schedule())
    requests = [Request((1, 2, 3, 4, 5), num_output_tokens=1)]
    replace(turns, requests=requests, rotates=True).take(2)
    first_tokens = [run[0].prompt_token_ids[0] for system in (ours, theirs) for run in system.requests]
    assert first_tokens == [1, 3, 2, 4]
    turns.take(2)
    assert ours.requests[2] == ours.requests[3] == list(REQUESTS)


def test_what_a_system_tells_of_itself_is_kept():
    turns, ours, _, _ = turns_of(Schedule())
    ours.facts = {"version": "1"}
    assert turns.take(1).facts == {HEADWAY: {"version": "1"}, "vllm": {}}


@pytest.mark.parametrize("load", [None, 0.5])
@pytest.mark.parametrize(
    ("stop", "stopped_by"),
    [(KeyboardInterrupt(), "interrupted"), (BenchError("vllm ended with status 1"), "vllm ended with status 1")],
)
def test_what_stops_a_later_round_leaves_the_ones_before_it(stop, stopped_by, load):
    turns, _, theirs, _ = turns_of(Schedule() if load is None else Schedule(Arrivals.POISSON, load=load))
    whole = turns.take(1)
    theirs.stop, theirs.num_left = stop, 1 if load is None else 3  # of a loaded round's two, and one of the next
    measured = turns.take(3).with_few_details()
    assert measured.stopped_by == stopped_by
    for some, all_of_one in (
        (measured.runs, whole.runs),
        (measured.bursts, whole.bursts),
        (measured.at_their_rate, whole.at_their_rate),
    ):
        assert {name: len(runs) for name, runs in some.items()} == {
            name: len(runs) for name, runs in all_of_one.items()
        }


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), BenchError("it ended")])
def test_what_stops_the_first_round_leaves_nothing(stop):
    turns, _, theirs, _ = turns_of(Schedule())
    theirs.stop, theirs.num_left = stop, 0
    with pytest.raises(type(stop)):
        turns.take(3)


def said_of(schedule: Schedule, *due_at: float) -> str:
    """Of the target's last run."""
    turns, _, _, _ = turns_of(schedule)
    said: list[str] = []
    requests = [*REQUESTS, *(Request((1,), 1, due_at=moment) for moment in due_at)]
    replace(turns, systems={HEADWAY: turns.systems[HEADWAY]}, requests=requests, say=said.append).take(1)
    return said[-1].strip().partition(":")[0]


@pytest.mark.parametrize(
    ("schedule", "due_at", "said"),
    [
        (Schedule(Arrivals.POISSON, rate=0.001234), (), "headway, 0.001234 requests/s"),
        (Schedule(), (), "headway, all at once"),
        (Schedule(), (1.0, 2.0), "headway, all at once and 2 at times of their own"),
        (Schedule(Arrivals.GAMMA, rate=2.0), (), "headway, 2 requests/s"),
        (Schedule(Arrivals.RAMP, rate=2.0, growth=3.0, ramp_seconds=9.0), (), "headway, 2 to 6 requests/s"),
        (Schedule(Arrivals.CLOSED, num_clients=3), (), "headway, 3 clients"),
    ],
)
def test_it_is_said_how_requests_come(schedule, due_at, said):
    assert said_of(schedule, *due_at) == said


@pytest.mark.parametrize(("rate", "words"), [(0.001, ["  the last request comes after 67 minutes"]), (1.0, [])])
def test_a_run_that_takes_long_is_said_to(rate, words):
    turns, _, _, _ = turns_of(Schedule(Arrivals.POISSON, rate=rate))
    said: list[str] = []
    replace(turns, systems={HEADWAY: turns.systems[HEADWAY]}, say=said.append).take(1)
    assert [line for line in said if "minutes" in line] == words


def test_the_target_is_called_what_people_call_it():
    turns, ours, _, _ = turns_of(Schedule())
    ours.reason = FinishReason.REJECTED
    with pytest.raises(BenchError, match="gateway completed none"):
        replace(turns, title="gateway").take(1)


def test_a_system_that_completes_nothing_is_an_error_with_its_reasons():
    turns, _, theirs, _ = turns_of(Schedule())
    theirs.reason = FinishReason.REJECTED
    with pytest.raises(BenchError, match="vllm completed none of the requests: 3 rejected"):
        turns.take(1)
