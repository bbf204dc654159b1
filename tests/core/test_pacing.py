"""What ``tpot_target`` does to steps, on a machine whose time is simulated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.pacing import MOST_STEP, PrefillRoom
from headway.core.scheduler import PrefixSharing, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step_cost import StepWork
from tests.core.timed_engine import STOP_SECONDS, Machine, TimedEngine, tpot

PAGE = 16


def an_engine(target: float | None = 0.05, machine: Machine | None = None, **options) -> TimedEngine:
    pool = {name: options.pop(name) for name in ("num_pages", "seed", "max_steps_in_flight") if name in options}
    config = SchedulerConfig(**{"max_num_batched_tokens": 512, "max_prefill_chunk": 512, **options}, tpot_target=target)
    return TimedEngine(config, machine or Machine(), page_size=PAGE, **pool)


def let_decode(engine: TimedEngine, num_sequences: int = 16, num_steps: int = 60, num_tokens: int = 2000) -> None:
    for _ in range(num_sequences):
        engine.add(100, num_tokens)
    for _ in range(num_steps):
        engine.step()


def prefill_tokens(plan) -> int:
    return StepWork.of(plan.chunks).num_prefill_tokens


def longest_gap(engine: TimedEngine, prompt: Sequence) -> float:
    """While the prompt was computed, without the first steps of it, which use up what was saved."""
    started = len(engine.plans)
    while prompt.first_token_at is None:
        engine.step()
    return max(engine.seconds[started:])


def test_without_a_target_a_long_prompt_makes_everyone_wait():
    engine = an_engine(target=None)
    let_decode(engine)
    assert longest_gap(engine, engine.add(4000, 10)) > 0.5


def test_with_a_target_a_long_prompt_takes_what_the_decodes_leave():
    engine = an_engine(target=0.05)
    let_decode(engine, num_tokens=400)
    assert longest_gap(engine, engine.add(4000, 10)) <= MOST_STEP * 0.05 * 1.1
    engine.run()
    assert max(tpot(sequence) for sequence in engine.sequences[:16]) <= 0.05 * 1.02


def test_time_that_was_saved_goes_to_the_next_prompt():
    """Long decoding leaves every sequence ahead of its target."""
    engine = an_engine(target=0.05)
    let_decode(engine, num_steps=200)
    engine.add(2000, 10)
    ahead = engine.step()
    assert ahead.predicted_seconds == pytest.approx(MOST_STEP * 0.05, rel=0.1)


def test_a_sequence_that_has_just_begun_has_saved_nothing():
    engine = an_engine(target=0.05)
    let_decode(engine, num_steps=200)
    newcomer = engine.add(10, 50)
    while newcomer.first_token_at is None:
        engine.step()
    engine.add(2000, 10)
    assert engine.step().predicted_seconds == pytest.approx(0.05, rel=0.1)


def test_a_step_that_is_planned_while_another_runs_has_the_time_from_its_end():
    engine = an_engine(target=0.05, max_steps_in_flight=2)
    let_decode(engine, num_steps=200)
    newcomer = engine.add(10, 50)
    engine.add(6000, 10)
    while newcomer.first_token_at is None:
        engine.step()
    planned = [engine.plans[-1], *(engine.step() for _ in range(6))]
    assert [plan.predicted_seconds for plan in planned] == pytest.approx([0.05] * 7, rel=0.1)


def test_steps_get_shorter_where_time_is_lost_beside_them():
    """The loop around the steps takes time, too, which no step is measured to take."""
    engine = an_engine(target=0.05)
    let_decode(engine, num_sequences=8, num_steps=20)
    measured = engine.sequences[-1]
    for _ in range(300):
        engine.add(500, 5)
        engine.step()
        engine.now += 0.008
    seconds = engine.now - measured.first_token_at
    assert seconds / (measured.num_output_tokens - 1) == pytest.approx(0.05, rel=0.1)


def test_nothing_but_the_fixed_budgets_counts_until_steps_are_known():
    engine = an_engine(target=0.001)
    engine.add(100, 100)
    engine.step()
    engine.add(4000, 10)
    plan = engine.step()
    assert (plan.num_tokens, plan.prefill_budget, plan.predicted_seconds) == (512, None, None)


def test_nothing_but_the_fixed_budgets_counts_while_nobody_decodes():
    engine = an_engine(target=0.03)
    let_decode(engine, num_tokens=70)
    engine.run()
    engine.add(4000, 10)
    assert engine.step().num_tokens == 512


def test_the_fixed_budgets_stay_the_most_that_a_step_takes():
    engine = an_engine(target=10.0, max_num_batched_tokens=128, max_prefill_chunk=64)
    let_decode(engine, num_sequences=4)
    engine.add(4000, 10)
    engine.add(4000, 10)
    plan = engine.step()
    assert sorted(chunk.num_tokens for chunk in plan.chunks) == [1, 1, 1, 1, 62, 62]
    assert plan.prefill_budget == 124


def test_where_the_decodes_alone_take_longer_each_step_still_computes_a_page_of_the_prompt():
    engine = an_engine(target=0.001)
    let_decode(engine)
    prompt = engine.add(1600, 10)
    started = len(engine.plans)
    while prompt.first_token_at is None:
        assert prefill_tokens(engine.step()) == PAGE
    assert len(engine.plans) - started == 1600 / PAGE


def test_where_not_even_a_token_fits_beside_the_decodes_each_step_still_computes_one():
    machine = Machine(step=0.04, token=0.004, decode=0.0005, context=0.0, pair=0.0)
    engine = an_engine(target=0.05, machine=machine)
    let_decode(engine)
    engine.add(2000, 10)
    assert [prefill_tokens(engine.step()) for _ in range(20)][-15:] == [1] * 15


class DearAtTheEnd:
    """Each token takes as many seconds as there are hundreds of tokens before it, and one."""

    def num_tokens_within(self, seconds: float, start: int) -> float:
        return seconds / (1 + start / 100)

    def seconds_of_tokens(self, start: int, num_tokens: int) -> float:
        return num_tokens * (1 + start / 100)


def test_a_room_is_used_up_by_what_tokens_take_where_they_stand_in_their_prompt():
    room = PrefillRoom(DearAtTheEnd(), seconds_left=10.0, num_least_left=0)
    assert room.take(start=100, num_tokens=3) == 3
    assert room.seconds_left == 4.0
    assert room.take(start=900, num_tokens=8) == 1, "not full: a token, though it takes more than is left"
    assert room.is_full


def test_a_long_prompt_leaves_room_for_the_short_one_behind_it():
    engine = an_engine(target=0.05, max_prefill_chunk=128)
    let_decode(engine)
    long = engine.add(6000, 10)
    for _ in range(10):
        engine.step()
    short = engine.add(60, 10)
    for _ in range(8):
        engine.step()
    assert short.first_token_at is not None
    assert long.first_token_at is None


def test_a_prompt_that_is_alone_gets_all_the_room():
    engine = an_engine(target=0.05, max_num_batched_tokens=512, max_prefill_chunk=128)
    let_decode(engine)
    engine.add(4000, 10)
    plan = engine.step()
    assert prefill_tokens(plan) > 0.8 * min(128, plan.prefill_budget)


def test_a_page_of_the_prompts_that_wait_for_a_slot_takes_no_room_from_the_one_that_has_one():
    engine = an_engine(target=0.05, max_num_seqs=17)
    let_decode(engine)
    engine.add(4000, 10)
    for _ in range(20):
        engine.add(4000, 10)
    plan = engine.step()
    assert prefill_tokens(plan) > 0.8 * plan.prefill_budget


def test_a_stopped_process_does_not_stop_prompts():
    """All sequences are late by seconds afterwards; a step is planned for most of a target all the same, and not for
    all of it, so that they are caught up with."""
    engine = an_engine(target=0.05, machine=Machine(stop_every=100))
    for _ in range(4):
        let_decode(engine, num_sequences=1, num_steps=26)
    assert max(engine.seconds) > STOP_SECONDS
    engine.add(2000, 10)
    planned = [engine.step().predicted_seconds for _ in range(10)]
    assert all(0.7 * 0.05 < seconds < 0.8 * 0.05 for seconds in planned)


def test_where_the_decodes_take_nearly_all_of_the_target_late_sequences_leave_prompts_a_part_of_the_rest():
    """And are caught up with by the other part."""
    machine = Machine(stop_every=100)
    decodes = machine.seconds(StepWork(0, 0, 16, 16 * 220))
    target = 1.25 * decodes
    engine = an_engine(target, machine)
    let_decode(engine, num_steps=110)
    assert max(engine.seconds) > STOP_SECONDS
    engine.add(2000, 10)
    plans = [engine.step() for _ in range(50)]
    rest = sum(prefill_tokens(plan) for plan in plans) * machine.token / (len(plans) * (target - decodes))
    assert 0.3 < rest <= 0.55
    assert max(engine.seconds[-50:]) < target


@pytest.mark.parametrize("num_decodes", [1, 4, 16])
@pytest.mark.parametrize("num_steps", [2.0, 3.0])
def test_a_target_of_a_few_decode_steps_is_kept_beside_long_prompts(num_decodes, num_steps):
    """At the end of these, one token is a good part of a small batch's step."""
    machine = Machine()
    target = num_steps * machine.seconds(StepWork(0, 0, num_decodes, num_decodes * 1000))
    engine = an_engine(target, machine, max_num_seqs=num_decodes + 1)
    for _ in range(6):  # one prompt after the other, so that steps are known
        let_decode(engine, num_sequences=1, num_steps=10, num_tokens=60)
    engine.run()
    decoding = [engine.add(200, 1500) for _ in range(num_decodes)]
    while any(sequence.first_token_at is None for sequence in decoding):
        engine.step()
    for _ in range(2):
        engine.add(8000, 8)
    started = len(engine.plans)
    engine.run(*decoding)
    assert max(tpot(sequence) for sequence in decoding) <= 1.02 * target
    token = machine.token + 8000 * machine.pair
    for plan, seconds in zip(engine.plans[started:], engine.seconds[started:], strict=True):
        assert seconds <= MOST_STEP * target + token, plan.prefill_budget


def test_a_resumed_sequence_saves_nothing_by_the_tokens_that_it_came_with():
    engine = an_engine(target=0.05)
    let_decode(engine, num_steps=200)
    resumed = engine.add(100, 500, num_restored=300)
    while resumed.first_token_at is None:
        engine.step()
    engine.add(2000, 10)
    assert engine.step().predicted_seconds == pytest.approx(0.05, rel=0.1)


def test_tokens_in_shared_pages_take_no_room():
    engine = an_engine(target=0.05, prefix_sharing=PrefixSharing.TENANT)
    engine.add(1040, 2, prefix=1024)
    engine.run()
    let_decode(engine)
    shared = engine.add(1040, 10, prefix=1024)
    engine.step()
    assert shared.first_token_at is not None


machines = st.builds(
    Machine,
    step=st.floats(1e-4, 0.05),
    token=st.floats(1e-6, 1e-3),
    decode=st.floats(1e-6, 1e-3),
    context=st.floats(0, 1e-6),
    pair=st.floats(0, 3e-7),
    noise=st.sampled_from([0.0, 0.1, 0.3]),
    stop_every=st.sampled_from([None, 37]),
)
jobs = st.lists(st.tuples(st.integers(1, 600), st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=20)
"""Prompt tokens, output tokens, steps after the one before."""


def has_room_for_a_prompt(engine: TimedEngine) -> bool:
    """Before a step: a prompt is on its way, and the decodes leave one of the step's tokens."""
    running = engine.scheduler.running
    partial = [sequence for sequence in running if sequence.num_uncomputed_tokens > 1]
    return bool(partial) and engine.config.num_step_tokens > len(running) - len(partial)


@settings(deadline=None, max_examples=50)
@given(
    machine=machines, jobs=jobs, target=st.floats(1e-4, 0.2), num_pages=st.integers(50, 120), chunk=st.integers(1, 64)
)
def test_whatever_the_machine_every_step_computes_prompts_and_every_decode(machine, jobs, target, num_pages, chunk):
    """Few pages, so that sequences are preempted, too."""
    engine = an_engine(
        target, machine, num_pages=num_pages, max_num_seqs=8, max_num_batched_tokens=64, max_prefill_chunk=chunk
    )
    for num_prompt_tokens, num_output_tokens, gap in jobs:
        for _ in range(gap):
            check_step(engine)
        engine.add(num_prompt_tokens, num_output_tokens)
    while engine.scheduler.has_work:
        check_step(engine)
    assert all(sequence.num_output_tokens == job[1] for sequence, job in zip(engine.sequences, jobs, strict=True))


def check_step(engine: TimedEngine) -> None:
    decoding = {s.number for s in engine.scheduler.running if s.num_uncomputed_tokens == 1}
    must_go_on = has_room_for_a_prompt(engine)
    plan = engine.step()
    engine.scheduler.check_integrity()
    gone = {sequence.number for sequence in plan.preempted}
    assert decoding - gone <= {chunk.sequence.number for chunk in plan.chunks}
    assert gone or not must_go_on or any(chunk.sequence.number not in decoding for chunk in plan.chunks)
    assert plan.num_tokens <= engine.config.num_step_tokens


@settings(deadline=None, max_examples=20)
@given(machine=machines, spare=st.floats(1.3, 4.0), seed=st.integers(0, 1000), depth=st.integers(1, 2))
def test_decodes_keep_their_target_wherever_they_can(machine, spare, seed, depth):
    """A target that leaves room for some tokens beside 12 decodes; prompts of all lengths keep coming."""
    machine = Machine(**{**as_dict(machine), "stop_every": None})
    least = machine.seconds(StepWork(4, 4 * 2000, 12, 12 * 2200))
    target = spare * least
    engine = an_engine(target, machine, max_num_seqs=12, seed=seed, max_steps_in_flight=depth)
    for _ in range(6):  # one prompt after the other, so that steps are known
        let_decode(engine, num_sequences=1, num_steps=10, num_tokens=60)
    engine.run()
    measured = [engine.add((337 * number) % 1990 + 1, 80) for number in range(24)]
    engine.run()
    late = [tpot(sequence) / target for sequence in measured]
    assert max(late) < 1.05 + machine.noise / 2
    assert all(sequence.status is SequenceStatus.FINISHED for sequence in measured)


def as_dict(machine: Machine) -> dict[str, float | int | None]:
    return {name: getattr(machine, name) for name in machine.__dataclass_fields__}
