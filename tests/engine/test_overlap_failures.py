"""Steps that fail while others are in flight, when they are launched or when they are read: no job notices."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.batch import StepPlan, StepResult
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel
from headway.engine.penalties import Penalties
from headway.engine.runner import PendingStep
from headway.engine.sampled_rows import SampledTokens
from tests.engine.overlap_cases import (
    Job,
    Player,
    assert_alike,
    assert_same,
    configs,
    jobs,
    make_engine,
    num_pages,
    play,
)

pytestmark = pytest.mark.usefixtures("many_engines")


class BrokenStep(PendingStep):
    """What the device says of it is an error."""

    def __init__(self) -> None:
        super().__init__([], SampledTokens(torch.empty(0, dtype=torch.int64)))

    def result(self) -> StepResult:
        raise RuntimeError("the step failed on the device")


def break_steps(engine: Engine, at_launch: set[int], at_read: set[int], never_ran: bool) -> None:
    """The steps of these numbers fail, once. One that fails when it is read has left wrong tokens and counts behind; if
    it ``never_ran``, no keys and values either."""
    runner = engine._runner._runner
    launch = runner.launch

    def faulty(plan: StepPlan) -> PendingStep:
        if plan.number in at_launch:
            raise MemoryError
        if plan.number not in at_read:
            return launch(plan)
        numbers = [chunk.sequence.number for chunk in plan.chunks if chunk.is_sampled]
        if not never_ran:
            launch(plan)
            miscount(engine._sampler._penalties, numbers)
        runner._last_tokens.keep(torch.zeros(len(numbers), dtype=torch.int64), numbers)
        return BrokenStep()

    runner.launch = faulty  # type: ignore[method-assign]


@torch.inference_mode()
def miscount(penalties: Penalties, numbers: list[int]) -> None:
    for slot in (penalties._slots[number] for number in numbers if number in penalties._slots):
        penalties._num_output[slot.row] += 1
        penalties._seen[slot.row] = True


step_numbers = st.sets(st.integers(1, 30), max_size=8)


@settings(deadline=None, max_examples=40)
@given(
    config=configs,
    mix=st.lists(jobs, min_size=1, max_size=8),
    num_pages=num_pages,
    at_launch=step_numbers,
    at_read=step_numbers,
    never_ran=st.booleans(),
)
def test_no_job_notices_a_step_that_failed_and_was_run_again(
    little: LoadedModel,
    config: SchedulerConfig,
    mix: list[Job],
    num_pages: int,
    at_launch: set[int],
    at_read: set[int],
    never_ran: bool,
) -> None:
    plain = play(little, config, num_pages, mix, 1)
    engine = make_engine(little, config, num_pages, 2)
    engine.rehearse()
    break_steps(engine, at_launch, at_read, never_ran)
    faulty = Player(engine, mix, 2).play()
    for number, job in enumerate(mix):
        check = assert_alike if job.may_differ else assert_same
        check(faulty.answer(number), plain.answer(number))
