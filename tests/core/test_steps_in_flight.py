"""Steps that are planned while the ones before them run: the host knows of a token later than the device."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.core.job import FinishReason
from headway.core.scheduler import Batching, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus
from tests.core.histories import (
    arrivals,
    check_ends,
    configs,
    crowding_configs,
    growing_arrivals,
    num_pages,
    play,
)

EOS = 0
depths = st.integers(2, 3)


def step(engine) -> None:
    engine.step()
    for plan in engine.plans[-2:]:
        planned = [chunk.sequence.number for chunk in plan.chunks]
        assert len(planned) == len(set(planned)) <= engine.config.max_num_seqs
        assert plan.num_tokens <= engine.config.max_num_batched_tokens


def check_waste(engine) -> None:
    """A row in each step that was in flight when a sequence ended, at the most; none by a length that was known."""
    for sequence in engine.sequences:
        assert engine.wasted[sequence.number] < engine.max_steps_in_flight
        if sequence.finish_reason is FinishReason.LENGTH:
            assert engine.wasted[sequence.number] == 0


@settings(deadline=None, max_examples=200)
@given(config=configs, history=st.lists(arrivals, min_size=1, max_size=12), num_pages=num_pages, depth=depths)
def test_every_job_ends_once_with_the_tokens_it_yields_alone(fake_engine, config, history, num_pages, depth):
    engine = fake_engine(config, num_pages=num_pages, page_size=4, max_steps_in_flight=depth)
    play(engine, history, step)
    check_ends(engine, history)
    check_waste(engine)


@settings(deadline=None, max_examples=200)
@given(
    config=crowding_configs,
    history=st.lists(growing_arrivals, min_size=4, max_size=12),
    num_pages=num_pages,
    depth=depths,
)
def test_preemptions_change_no_token_and_spare_the_oldest(fake_engine, config, history, num_pages, depth):
    engine = fake_engine(config, num_pages=num_pages, page_size=4, max_steps_in_flight=depth)
    play(engine, history, step)
    check_ends(engine, history)
    check_waste(engine)
    assert engine.sequences[0].num_preemptions <= config.max_preemptions


def make_engine(fake_engine, tokens: list[int] | None = None, config: SchedulerConfig | None = None, **options):
    """Two steps in flight. ``tokens``: what the model says, whatever the prompt is; the last one for ever."""
    options = {"num_pages": 100, "page_size": 4, "max_steps_in_flight": 2, **options}
    if tokens is not None:
        options["choose"] = lambda sequence: tokens[min(sequence.num_output_tokens, len(tokens) - 1)]
    return fake_engine(config or SchedulerConfig(max_num_seqs=8), **options)


def parts(plan: StepPlan, sequence: Sequence) -> list[tuple[int, int, bool]]:
    """Start, end and whether it is sampled, of the chunks of the sequence in this step."""
    return [(chunk.start, chunk.end, chunk.is_sampled) for chunk in plan.chunks if chunk.sequence is sequence]


def test_a_sequence_goes_on_while_its_token_is_on_its_way(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    sequence = engine.add(6)
    first, second = engine.launch(), engine.launch()
    assert parts(first, sequence) == [(0, 6, True)]
    assert parts(second, sequence) == [(6, 7, True)]
    assert [chunk.output_position for plan in (first, second) for chunk in plan.chunks] == [0, 1]
    assert (sequence.num_output_tokens, sequence.num_pending_tokens) == (0, 2)
    engine.finish()
    assert (sequence.output_token_ids, sequence.num_pending_tokens) == ([5], 1)
    engine.scheduler.check_integrity()


def test_a_chunk_that_is_not_the_last_samples_nothing(fake_engine):
    engine = make_engine(fake_engine, config=SchedulerConfig(max_num_seqs=2, max_prefill_chunk=4))
    sequence = engine.add(6)
    assert parts(engine.launch(), sequence) == [(0, 4, False)]
    assert sequence.num_pending_tokens == 0
    assert parts(engine.launch(), sequence) == [(4, 6, True)]
    assert sequence.num_pending_tokens == 1


@pytest.mark.parametrize("limit", [{"max_tokens": 3}, {"max_tokens": 9, "max_model_len": 9}])
def test_no_step_is_planned_beyond_a_length_that_is_known(fake_engine, limit):
    engine = make_engine(fake_engine, tokens=[5], max_model_len=limit.pop("max_model_len", 100))
    sequence = engine.add(6, **limit)
    engine.run()
    assert sequence.finish_reason is FinishReason.LENGTH
    assert [parts(plan, sequence) for plan in engine.plans if plan.chunks] == [
        [(0, 6, True)],
        [(6, 7, True)],
        [(7, 8, True)],
    ]
    assert engine.wasted.total() == 0


def test_a_sequence_with_its_last_token_on_its_way_takes_no_page(fake_engine):
    engine = make_engine(fake_engine, tokens=[5], num_pages=3)
    sequence = engine.add(7, max_tokens=2)
    for _ in range(3):
        engine.launch()
    assert sequence.num_tokens_with_pending == 9
    assert len(sequence.page_table) == 2


@pytest.mark.parametrize("batching", Batching)
def test_an_end_that_follows_from_the_token_wastes_one_row(fake_engine, batching):
    config = SchedulerConfig(max_num_seqs=8, batching=batching)
    engine = make_engine(fake_engine, tokens=[5, EOS], config=config)
    short, long = engine.add(6), engine.add(6, ignore_eos=True)
    engine.run()
    assert short.output_token_ids == [5, EOS]
    assert (engine.wasted[short.number], engine.wasted[long.number]) == (1, 0)
    assert all(short not in outcome.appended for outcome in engine.outcomes[2:])


def test_a_first_token_needs_no_step_after_it(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    engine.add(6, max_tokens=1)
    engine.step()
    assert len(engine.outcomes[0].finished) == 1
    assert not engine.has_work


def test_what_a_page_holds_is_published_when_its_step_has_ended(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    prompt = list(range(1, 10))
    engine.add(prompt)
    engine.launch()
    early = engine.add(prompt)
    engine.launch()
    engine.finish()
    late = engine.add(prompt)
    engine.launch()
    assert (early.num_cached_tokens, late.num_cached_tokens) == (0, 8)


def test_a_page_that_a_step_in_flight_writes_to_may_have_a_new_holder(fake_engine):
    """Of three pages the first sequence holds two, and its wasted row writes into the second, which the other has by
    then: what the other reads there is its own, as it comes later on the device."""
    engine = make_engine(fake_engine, tokens=[EOS], num_pages=3)
    ended = engine.add(4, max_tokens=8)
    engine.step()  # it ended, and a step with its fifth token is in flight
    assert ended.page_table == []
    assert engine.pool.stats().num_available == 3
    other = engine.add(8, max_tokens=3, ignore_eos=True)
    engine.run()
    assert engine.wasted[ended.number] == 1
    assert other.num_output_tokens == 3


def crowd(fake_engine, tokens: list[int], **options):
    """The older of two sequences needs a page for its third step, and there is none: so the newer is preempted."""
    config = SchedulerConfig(max_num_seqs=2, page_watermark_low=0, page_watermark_high=0)
    engine = make_engine(fake_engine, tokens=tokens, config=config, num_pages=4)
    older, newer = engine.add(7, max_tokens=5, ignore_eos=True), engine.add(6, **options)
    engine.launch()
    engine.launch()
    engine.finish()
    return engine, older, newer


def preempt(engine, newer: Sequence) -> StepPlan:
    plan = engine.launch()
    assert plan.preempted == (newer,)
    assert (newer.status, newer.num_pending_tokens, newer.page_table) == (SequenceStatus.WAITING, 1, [])
    engine.scheduler.check_integrity()
    return plan


def test_a_preempted_sequence_keeps_the_token_that_was_on_its_way(fake_engine):
    engine, _, newer = crowd(fake_engine, [5, 6, 7], ignore_eos=True)
    preempt(engine, newer)
    engine.finish()
    assert newer in engine.outcomes[-1].appended
    assert newer.output_token_ids == [5, 6]
    engine.run()
    assert newer.output_token_ids == [5, 6, 7, 7, 7, 7, 7, 7, 7, 7]


def test_a_preempted_sequence_may_end_with_that_token(fake_engine):
    engine, _, newer = crowd(fake_engine, [5, EOS])
    preempt(engine, newer)
    engine.finish()
    assert engine.outcomes[-1].finished == (newer,)
    assert newer.finish_reason is FinishReason.STOP
    assert engine.scheduler.waiting == ()
    engine.scheduler.check_integrity()


def test_a_preempted_sequence_does_not_join_before_that_token_has_come(fake_engine):
    engine, older, newer = crowd(fake_engine, [5], ignore_eos=True)
    plan = preempt(engine, newer)
    engine.scheduler.withdraw(older)
    assert engine.launch().chunks == ()
    engine.finish()
    assert [chunk.sequence for chunk in engine.launch().chunks] == [newer]
    assert [chunk.sequence for chunk in plan.chunks] == [older]


def test_a_preempted_sequence_whose_token_was_lost_samples_it_again(fake_engine):
    """As when its step failed, and was run again without it."""
    engine, older, newer = crowd(fake_engine, [5, 6], ignore_eos=True)
    lost = engine.plans[1]
    preempt(engine, newer)
    outcome = engine.scheduler.update(lost, StepResult({older.number: SampledToken(6)}), engine.now)
    assert outcome.appended == (older,)
    assert (newer.output_token_ids, newer.num_pending_tokens) == ([5], 0)
    engine.scheduler.check_integrity()


def test_a_sequence_that_failed_after_it_was_preempted_leaves_no_pages_behind(fake_engine):
    engine, _, newer = crowd(fake_engine, [5], ignore_eos=True)
    preempt(engine, newer)
    assert engine.pool.find_prefix(newer.page_keys) != []
    engine.scheduler.end(newer, FinishReason.ERROR, engine.now)
    assert engine.pool.find_prefix(newer.page_keys) == []
    engine.scheduler.check_integrity()


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_who_leaves_with_a_token_on_its_way_does_not_get_it(fake_engine, is_withdrawn):
    engine = make_engine(fake_engine, tokens=[5])
    sequence, other = engine.add(6), engine.add(6)
    engine.step()
    if is_withdrawn:
        engine.scheduler.withdraw(sequence)
    else:
        engine.scheduler.end(sequence, FinishReason.CANCELLED, engine.now)
    engine.run()
    assert sequence.output_token_ids == [5]
    assert engine.wasted[sequence.number] == 1
    assert other.num_output_tokens == 10


def test_steps_are_updated_in_their_order(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    sequence = engine.add(6)
    engine.launch()
    second = engine.launch()
    with pytest.raises(AssertionError, match="updated before"):
        engine.scheduler.update(second, StepResult({sequence.number: SampledToken(5)}), 1.0)


def test_recomputed_tokens_are_counted_once(fake_engine):
    engine, older, newer = crowd(fake_engine, [5], ignore_eos=True)
    preempt(engine, newer)
    num_lost = newer.num_discarded_tokens
    engine.scheduler.withdraw(older)
    engine.run()
    stats = engine.scheduler.stats()
    assert (stats.num_preemptions_total, num_lost) == (1, 7)
    assert stats.num_recomputed_tokens_total == 3  # the others were in a page that was found again
