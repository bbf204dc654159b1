"""The cost model on simulated machines."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.scheduler import SchedulerConfig
from headway.core.step_cost import NUM_STEPS_KNOWN, StepCostModel, StepWork, num_pairs
from tests.core.timed_engine import Machine, TimedEngine

machines = st.builds(
    Machine,
    step=st.floats(1e-4, 0.1),
    token=st.floats(1e-6, 1e-3),
    decode=st.floats(1e-6, 1e-2),
    context=st.floats(0, 1e-6),
    pair=st.floats(0, 1e-6),
)


TRUE_SECONDS = Machine.token * 128 + Machine.pair * num_pairs(1000, 128)


def scaled(machine: Machine, factor: float) -> Machine:
    engine = TimedEngine(SchedulerConfig(), machine)
    engine.slow_down(factor)
    return engine.machine


def any_work(draw: random.Random, kind: str = "any") -> StepWork:
    num_decodes = 0 if kind == "prefill" else draw.randint(1, 64)
    num_tokens = 0 if kind == "decode" else draw.choice([0, 16, 100, 128, 400])
    start = draw.randint(0, 4000)
    return StepWork(
        num_prefill_tokens=num_tokens,
        num_prefill_pairs=num_pairs(start, num_tokens),
        num_decodes=num_decodes,
        num_context_tokens=num_decodes * draw.randint(10, 2000),
    )


def learn(machine: Machine, num_steps: int, noise: float = 0.0, kind: str = "any") -> StepCostModel:
    model = StepCostModel()
    teach(model, machine, num_steps, noise, kind)
    return model


def teach(model: StepCostModel, machine: Machine, num_steps: int, noise: float = 0.0, kind: str = "any") -> None:
    draw = random.Random(7)
    for _ in range(num_steps):
        work = any_work(draw, kind)
        model.observe(work, machine.seconds(work) * max(0.2, draw.gauss(1.0, noise)))


def mean_error(model: StepCostModel, machine: Machine, kind: str = "any") -> float:
    """Relative, over steps that it has not seen."""
    draw = random.Random(99)
    works = [any_work(draw, kind) for _ in range(100)]
    return sum(abs(model.predict(work) / machine.seconds(work) - 1) for work in works) / len(works)


@settings(deadline=None, max_examples=50)
@given(machine=machines)
def test_it_comes_to_know_any_machine(machine):
    assert mean_error(learn(machine, 300), machine) < 0.05


def test_few_steps_are_enough_for_a_rough_idea():
    assert mean_error(learn(Machine(), 15), Machine()) < 0.2


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_noise_does_not_bend_it(noise):
    assert mean_error(learn(Machine(), 500, noise), Machine()) < 0.15


def test_it_follows_a_machine_that_becomes_slower_within_a_few_dozen_steps():
    model = learn(Machine(), 300, noise=0.1)
    slower = scaled(Machine(), 4.0)
    teach(model, slower, 30, noise=0.1)
    assert mean_error(model, slower) < 0.2


@pytest.mark.parametrize("seconds", [20.0, 1e6])
def test_a_step_in_which_the_process_was_stopped_counts_as_a_long_one_and_is_soon_forgotten(seconds):
    model = learn(Machine(), 200)
    model.observe(any_work(random.Random(3)), seconds)
    assert mean_error(model, Machine()) < 0.4
    teach(model, Machine(), 20)
    assert mean_error(model, Machine()) < 0.1


@pytest.mark.parametrize("seconds", [20.0, 1e6])
def test_even_the_first_step_may_be_such_a_one(seconds):
    model = StepCostModel()
    model.observe(any_work(random.Random(3)), seconds)
    teach(model, Machine(), 30)
    assert mean_error(model, Machine()) < 0.1


def test_long_decoding_does_not_wear_away_what_is_known_about_prompts():
    model = learn(Machine(), 200, noise=0.1)
    known = model.num_tokens_within(0.05, start=1000)
    teach(model, Machine(), 3000, noise=0.1, kind="decode")
    assert model.num_tokens_within(0.05, start=1000) == pytest.approx(known, rel=0.2)


@pytest.mark.parametrize("factor", [0.5, 4.0])
def test_prompts_are_known_to_be_dearer_once_decoding_has_become_so(factor):
    model = learn(Machine(), 200, noise=0.1)
    known = model.num_tokens_within(0.05, start=1000)
    teach(model, scaled(Machine(), factor), 500, noise=0.1, kind="decode")
    assert model.num_tokens_within(0.05, start=1000) == pytest.approx(known / factor, rel=0.5)


def test_it_follows_a_cost_that_changes_alone():
    model = learn(Machine(), 1000)
    changed = Machine(token=5 * Machine.token)
    teach(model, changed, 200)
    assert mean_error(model, changed) < 0.1


def test_prompts_are_known_by_many_steps_even_where_they_are_rare():
    """One noisy step must not decide, however long ago the one before it was."""
    model = learn(Machine(), 200)
    draw = random.Random(5)
    errors = []
    for number in range(1500):
        work = any_work(draw, "prefill" if number % 50 == 0 else "decode")
        model.observe(work, Machine().seconds(work) * draw.gauss(1.0, 0.25))
        if number > 500:
            errors.append(abs(model.seconds_of_tokens(1000, 128) / TRUE_SECONDS - 1))
    assert sum(errors) / len(errors) < 0.1


def test_the_end_of_a_long_prompt_is_known_to_be_dearer_than_its_beginning():
    model = learn(Machine(), 300)
    assert model.num_tokens_within(0.05, start=0) > 1.5 * model.num_tokens_within(0.05, start=4000)


@settings(deadline=None, max_examples=100)
@given(machine=machines, seconds=st.floats(1e-4, 1.0), start=st.integers(0, 10_000))
def test_the_tokens_within_a_time_are_the_most_that_fit_into_it(machine, seconds, start):
    model = learn(machine, 50)
    tokens = model.num_tokens_within(seconds, start)
    if tokens < 1e9:
        most = math.floor(tokens * (1 + 1e-9))
        assert model.seconds_of_tokens(start, most) <= seconds * (1 + 1e-6)
        assert model.seconds_of_tokens(start, most + 1) >= seconds * (1 - 1e-6)


def test_no_time_is_room_for_nothing():
    model = learn(Machine(), 50)
    assert [model.num_tokens_within(seconds, 0) for seconds in (0.0, -1.0)] == [0.0, 0.0]


def test_it_predicts_nothing_before_it_has_seen_steps_of_both_kinds():
    model = learn(Machine(), 100, kind="decode")
    assert not model.is_known
    teach(model, Machine(), NUM_STEPS_KNOWN - 1, kind="prefill")
    draw = random.Random(1)
    while not model.is_known:
        work = any_work(draw)
        model.observe(work, Machine().seconds(work))
        assert model.is_known == (work.num_prefill_tokens > 0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e-300, 1e300])
def test_what_no_step_can_take_teaches_nothing(seconds):
    draw = random.Random(4)
    model = StepCostModel()
    for _ in range(10):
        model.observe(any_work(draw), seconds)
    assert not model.is_known
    teach(model, Machine(), 50)
    assert mean_error(model, Machine()) < 0.1


counts = st.one_of(st.just(0), st.integers(1, 10_000_000))
works = st.builds(StepWork, counts, counts, counts, counts)
times = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.floats(1e-300, 1e300))


@settings(deadline=None, max_examples=300)
@given(steps=st.lists(st.tuples(works, times), max_size=40), work=works, seconds=st.floats(-10, 10))
def test_nothing_that_a_clock_may_say_makes_it_predict_nonsense(steps, work, seconds):
    model = StepCostModel()
    for done, took in steps:
        model.observe(done, took)
    assert 0.0 <= model.predict(work) < math.inf
    assert model.num_tokens_within(seconds, start=100) >= 0.0
    assert 0.0 <= model.seconds_of_tokens(100, 16) < math.inf
