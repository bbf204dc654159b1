"""What a step's time is, and what may be launched when; on a device whose steps end when they are told to."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from headway.core.batch import ScheduledChunk, StepPlan, StepResult
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence, SequenceStatus
from headway.engine.pipeline import Pipeline


@dataclass
class Step:
    has_ended: bool = False
    fails: bool = False


@dataclass
class Device:
    """In the place of `CarefulRunner`. Times pass by hand."""

    now: float = 0.0
    launch_seconds: float = 0.0
    ends_at_once: bool = False
    refused: set[int] = field(default_factory=set)
    """Steps that cannot be launched."""
    failing: set[int] = field(default_factory=set)
    launched: list[int] = field(default_factory=list)
    run_alone: list[StepPlan] = field(default_factory=list)

    def launch(self, plan: StepPlan) -> Step | None:
        self.now += self.launch_seconds
        self.launched.append(plan.number)
        return None if plan.number in self.refused else Step(self.ends_at_once, plan.number in self.failing)

    def finish(self, plan: StepPlan, step: Step) -> StepResult | None:
        return None if step.fails else StepResult({})

    def run(self, plan: StepPlan) -> StepResult:
        self.run_alone.append(plan)
        return StepResult({})

    def pipeline(self, max_steps: int) -> Pipeline:
        return Pipeline(self, max_steps, lambda: self.now)  # type: ignore[arg-type]


def make_plan(number: int, *statuses: SequenceStatus) -> StepPlan:
    sequences = [
        Sequence(i, JobKey("acme", str(i)), SamplingParams(), [1], 1, 0.0, status=status)
        for i, status in enumerate(statuses or (SequenceStatus.RUNNING,))
    ]
    return StepPlan(number, tuple(ScheduledChunk(sequence, 0, 1, is_sampled=True) for sequence in sequences))


def finish(device: Device, pipeline: Pipeline, at: float) -> tuple[int, float]:
    """The oldest step's number and its seconds."""
    device.now = at
    flight, _ = pipeline.finish()
    return flight.plan.number, pipeline.close(flight)


def test_a_step_counts_from_the_end_of_the_one_before_it() -> None:
    device = Device()
    pipeline = device.pipeline(2)
    for number in (1, 2):
        pipeline.launch(make_plan(number), began_at=0.0)
    assert finish(device, pipeline, at=10.0) == (1, 10.0)
    pipeline.launch(make_plan(3), began_at=11.0)
    assert finish(device, pipeline, at=18.0) == (2, 8.0)
    assert finish(device, pipeline, at=25.0) == (3, 7.0)
    pipeline.launch(make_plan(4), began_at=40.0)
    assert finish(device, pipeline, at=42.0) == (4, 2.0)  # nobody was there in between


def test_a_step_that_is_computed_when_it_is_launched_does_not_count_for_the_one_before() -> None:
    device = Device(launch_seconds=5.0, ends_at_once=True)
    pipeline = device.pipeline(2)
    for number in (1, 2):
        pipeline.launch(make_plan(number), began_at=device.now)
    assert finish(device, pipeline, at=11.0) == (1, 5.0)
    assert finish(device, pipeline, at=12.0) == (2, 5.0)


def test_one_step_at_a_time_is_run_by_itself_and_counts_to_its_very_end() -> None:
    device = Device()
    pipeline = device.pipeline(1)
    pipeline.launch(make_plan(1), began_at=0.0)
    assert not pipeline.has_room
    assert finish(device, pipeline, at=3.0) == (1, 3.0)
    assert device.launched == []
    assert [plan.number for plan in device.run_alone] == [1]


@pytest.mark.parametrize("how", ["refused", "failing"])
def test_behind_a_step_that_failed_nothing_is_launched_until_all_are_run_again(how: str) -> None:
    device = Device(**{how: {1}})
    pipeline = device.pipeline(2)
    pipeline.launch(make_plan(1), began_at=0.0)
    if pipeline.has_room:
        pipeline.launch(make_plan(2), began_at=0.0)
    num_flights = len(device.launched)
    assert num_flights == (2 if how == "failing" else 1)
    for number in range(1, num_flights + 1):
        assert finish(device, pipeline, at=float(number))[0] == number
        assert [plan.number for plan in device.run_alone] == list(range(1, number + 1))
        assert pipeline.has_room == (number == num_flights)
    pipeline.launch(make_plan(3), began_at=9.0)
    assert pipeline.has_room


def test_who_has_left_meanwhile_is_not_run_again() -> None:
    device = Device(failing={1})
    pipeline = device.pipeline(2)
    plan = make_plan(1, SequenceStatus.RUNNING, SequenceStatus.WAITING, SequenceStatus.FINISHED)
    pipeline.launch(plan, began_at=0.0)
    pipeline.finish()
    (again,) = device.run_alone
    assert again.chunks == plan.chunks[:1]
