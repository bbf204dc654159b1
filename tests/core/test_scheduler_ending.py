"""How a sequence ends, and that its pages are free in the same step."""

from __future__ import annotations

import pytest

from headway.core.batch import SampledToken, StepResult
from headway.core.errors import JobRejected, RejectCode
from headway.core.job import FinishReason
from headway.core.scheduler import SchedulerConfig
from headway.core.sequence import SequenceStatus

EOS = 0
STOP_TOKEN = 7


def make_engine(fake_engine, tokens: list[int] | None = None, **options):
    """``tokens``: what the model says, whatever the prompt is; the last one for ever."""
    config = SchedulerConfig(max_num_seqs=options.pop("max_num_seqs", 8))
    options = {"num_pages": 100, "page_size": 4, **options}
    if tokens is not None:
        options["choose"] = lambda sequence: tokens[min(sequence.num_output_tokens, len(tokens) - 1)]
    return fake_engine(config, **options)


@pytest.mark.parametrize(
    ("options", "reason", "num_output_tokens"),
    [
        ({}, FinishReason.STOP, 3),
        ({"ignore_eos": True, "max_tokens": 6}, FinishReason.LENGTH, 6),
        ({"stop_token_ids": (STOP_TOKEN,)}, FinishReason.STOP, 2),
        ({"stop_token_ids": (STOP_TOKEN,), "min_tokens": 3}, FinishReason.STOP, 3),
        ({"min_tokens": 4, "max_tokens": 5}, FinishReason.STOP, 4),
        ({"max_tokens": 2}, FinishReason.LENGTH, 2),
        ({"max_tokens": 3}, FinishReason.STOP, 3),
    ],
)
def test_a_sequence_ends_at_eos_a_stop_token_or_its_limit(fake_engine, options, reason, num_output_tokens):
    engine = make_engine(fake_engine, tokens=[5, STOP_TOKEN, EOS])
    sequence = engine.add(6, **options)
    engine.run()
    assert (sequence.finish_reason, sequence.num_output_tokens) == (reason, num_output_tokens)


def test_a_sequence_ends_at_the_models_length(fake_engine):
    engine = make_engine(fake_engine, tokens=[5], max_model_len=10)
    sequence = engine.add(6, max_tokens=100)
    engine.run()
    assert (sequence.finish_reason, sequence.num_tokens) == (FinishReason.LENGTH, 10)


@pytest.mark.parametrize(("min_tokens", "ends"), [(0, True), (1, True), (2, False)])
def test_a_stop_string_ends_a_sequence_in_the_step_that_completes_it(fake_engine, min_tokens, ends):
    engine = make_engine(fake_engine)
    sequence = engine.add(6, min_tokens=min_tokens)
    plan = engine.scheduler.schedule(0.0)
    result = StepResult({sequence.number: SampledToken(5, completes_stop=True)})
    outcome = engine.scheduler.update(plan, result, 1.0)
    assert outcome.appended == (sequence,)
    assert outcome.finished == ((sequence,) if ends else ())
    assert sequence.finish_reason is (FinishReason.STOP if ends else None)


def test_the_pages_of_a_sequence_are_free_in_the_step_that_ends_it(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    short, long = engine.add(6, max_tokens=1), engine.add(6, max_tokens=9)
    engine.step()
    assert engine.outcomes[-1].finished == (short,)
    assert short.page_table == []
    assert engine.pool.stats().num_used == len(long.page_table)
    engine.scheduler.check_integrity()


def test_a_cancelled_sequence_frees_its_pages_at_once(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    sequence = engine.add(6)
    engine.step()
    assert engine.scheduler.end(sequence, FinishReason.CANCELLED, now=1.5)
    assert (sequence.status, sequence.finish_reason) == (SequenceStatus.FINISHED, FinishReason.CANCELLED)
    assert sequence.finished_at == 1.5
    assert engine.pool.stats().num_used == 0
    assert not engine.scheduler.has_work


def test_a_waiting_sequence_can_be_cancelled(fake_engine):
    engine = make_engine(fake_engine)
    sequence = engine.add(6)
    assert engine.scheduler.end(sequence, FinishReason.EXPIRED, now=1.0)
    assert not engine.scheduler.has_work
    assert engine.scheduler.stats().waiting_pages == 0


def test_ending_a_sequence_twice_is_harmless(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    sequence = engine.add(6, max_tokens=1)
    engine.run()
    assert not engine.scheduler.end(sequence, FinishReason.CANCELLED, now=9.0)
    assert not engine.scheduler.withdraw(sequence)
    assert sequence.finish_reason is FinishReason.LENGTH
    engine.scheduler.check_integrity()


def test_a_withdrawn_sequence_has_finished_for_no_reason(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    running = engine.add(6)
    engine.step()
    waiting = engine.add(6)
    for sequence in (running, waiting):
        assert engine.scheduler.withdraw(sequence)
        assert (sequence.status, sequence.finish_reason) == (SequenceStatus.FINISHED, None)
    assert engine.pool.stats().num_used == 0
    assert not engine.scheduler.has_work


def test_a_sequence_that_is_cancelled_while_its_step_runs_gets_no_token(fake_engine):
    engine = make_engine(fake_engine)
    cancelled, other = engine.add(6), engine.add(6)
    plan = engine.scheduler.schedule(0.0)
    engine.scheduler.end(cancelled, FinishReason.CANCELLED, now=0.5)
    outcome = engine.scheduler.update(plan, StepResult({other.number: SampledToken(5)}), 1.0)
    assert outcome.appended == (other,)
    assert cancelled.num_output_tokens == 0
    engine.scheduler.check_integrity()


@pytest.mark.parametrize("output", [[5, EOS], [5] * 10])
def test_a_resumed_sequence_whose_output_is_complete_has_ended_when_it_is_added(fake_engine, output):
    engine = make_engine(fake_engine)
    sequence = engine.add(6, max_tokens=10, output=output)
    assert sequence.status is SequenceStatus.FINISHED
    assert sequence.finish_reason is (FinishReason.STOP if EOS in output else FinishReason.LENGTH)
    assert not engine.scheduler.has_work


def test_a_prompt_that_ends_in_eos_has_not_ended(fake_engine):
    engine = make_engine(fake_engine, tokens=[5])
    sequence = engine.add([1, 2, EOS])
    assert sequence.status is SequenceStatus.WAITING


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "field"),
    [(64, 1, "prompt"), (39, 2, "max_tokens"), (10, 50, "max_tokens")],
)
def test_a_sequence_that_could_never_run_to_its_end_is_rejected(fake_engine, prompt, max_tokens, field):
    engine = make_engine(fake_engine, num_pages=10, max_model_len=64)
    with pytest.raises(JobRejected) as rejected:
        engine.add(prompt, max_tokens=max_tokens)
    assert (rejected.value.code, rejected.value.field) == (RejectCode.TOO_LONG, field)
    assert not engine.scheduler.has_work


def test_a_sequence_that_just_fits_the_pool_runs_to_its_end(fake_engine):
    engine = make_engine(fake_engine, tokens=[5], num_pages=10)
    sequence = engine.add(38, max_tokens=2)
    engine.run()
    assert sequence.num_output_tokens == 2
