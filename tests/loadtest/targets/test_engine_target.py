"""A whole run on a real engine with a tiny model, on a clock that only sleeping moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.build import build_engine
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from loadtest.recording import Outcome, Recording
from loadtest.targets.engine_target import run_on_engine
from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request

REQUESTS = tuple(Request(tuple(range(10, 10 + n)), num_output_tokens=n, gap=1.0) for n in (3, 5, 8, 13))


@dataclass
class Clock:
    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def engine(tiny_model: Path) -> Engine:
    scheduling = SchedulerConfig(max_num_seqs=4, prefix_sharing=PrefixSharing.OFF)
    return build_engine(EngineConfig(model=str(tiny_model), kv_memory="1MiB"), scheduling, print)


def run(engine: Engine, plan: Plan, clock: Clock, requests: Sequence[Request] = REQUESTS) -> Recording:
    return run_on_engine(engine, requests, plan, clock=clock, sleep=clock.sleep)


def test_a_burst_is_one_batch_and_every_request_gets_exactly_its_tokens(engine):
    recording = run(engine, [0.0] * 4, Clock())
    assert [line.num_tokens for line in recording.timelines] == [3, 5, 8, 13]
    assert len(recording.completed) == 4
    assert len(recording.steps.steps) == 13
    assert recording.steps.slot_utilisation == pytest.approx((3 + 5 + 8 + 13) / (4 * 13))
    assert recording.cpu_seconds.keys() == {"engine"}


def test_requests_wait_until_they_are_due(engine):
    clock = Clock()
    recording = run(engine, [1.0, 4.0, 9.0, 16.0], clock)
    assert clock.pauses == [1.0, 3.0, 5.0, 7.0]
    assert [line.first_token_at for line in recording.timelines] == [1.0, 4.0, 9.0, 16.0]
    assert [line.ttft_seconds for line in recording.timelines] == [0.0] * 4


def test_a_second_run_on_the_same_engine_counts_from_zero(engine):
    first, second = run(engine, [0.0] * 4, Clock()), run(engine, [0.0] * 4, Clock())
    assert second.steps.slot_utilisation == first.steps.slot_utilisation
    assert len(second.steps.steps) == len(first.steps.steps)


@dataclass
class SteppingClock(Clock):
    """Every look at it takes a moment."""

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_a_client_of_a_closed_loop_asks_again_after_its_answer_and_its_pause(engine):
    plan = ClosedLoop(1, pauses=[0.0, 2.0, 3.0, 0.0], due_at=[None] * 4)
    recording = run(engine, plan, clock := Clock())
    assert len(recording.completed) == 4
    assert [line.due_at for line in recording.timelines] == [0.0, 2.0, 5.0, 5.0]
    assert clock.pauses == [2.0, 3.0]
    assert max(end.num_running for end in recording.steps.ends) <= 1


def test_two_clients_keep_two_requests_running(engine):
    recording = run(engine, ClosedLoop(2, pauses=[0.0] * 4, due_at=[None] * 4), Clock())
    assert len(recording.completed) == 4
    assert max(step.num_sequences for step in recording.steps.steps) == 2


def test_a_request_is_cancelled_in_the_middle_and_the_others_go_on(engine):
    patient, impatient = REQUESTS[3], replace(REQUESTS[3], num_output_tokens=200, cancel_after_seconds=0.1)
    recording = run(engine, [0.0, 0.0], SteppingClock(), [impatient, patient])
    assert [line.outcome for line in recording.timelines] == [Outcome.CANCELLED, Outcome.COMPLETED]
    assert 0 < recording.timelines[0].num_tokens < 200
    assert recording.timelines[0].ended_at >= 0.1


def test_a_cancel_that_comes_too_late_changes_nothing(engine):
    recording = run(engine, [0.0], Clock(), [replace(REQUESTS[0], cancel_after_seconds=1000.0)])
    assert recording.timelines[0].outcome is Outcome.COMPLETED


def test_the_last_request_may_be_a_cancelled_or_a_rejected_one(engine):
    too_long = Request(tuple([5] * 300), num_output_tokens=10)
    cancelled_at_once = replace(REQUESTS[0], cancel_after_seconds=0.0)
    recording = run(engine, [0.0, 1.0], Clock(), [too_long, cancelled_at_once])
    assert [line.outcome for line in recording.timelines] == [Outcome.FAILED, Outcome.CANCELLED]


def test_a_request_waits_in_the_queue_until_it_is_first_scheduled(engine):
    recording = run(engine, [0.0] * 5, SteppingClock(), [*REQUESTS, REQUESTS[0]])
    waited = [line.queue_seconds for line in recording.timelines]
    assert all(seconds is not None and seconds >= 0 for seconds in waited)
    # Four sequences at most: the fifth waits until the shortest has ended.
    assert waited[4] >= recording.timelines[0].ended_at - recording.timelines[4].due_at
    assert max(waited[:4]) < waited[4]


def test_what_a_request_is_refused_with_is_counted(engine):
    too_long = Request(tuple(range(3, 90)) * 12, num_output_tokens=8)
    recording = run(engine, [0.0] * 3, Clock(), (too_long, REQUESTS[0], too_long))
    assert recording.errors == {"too_long": 2}
    assert [line.outcome for line in recording.timelines] == [Outcome.FAILED, Outcome.COMPLETED, Outcome.FAILED]
