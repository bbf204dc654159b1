"""The overlapped loop, which launches a step before it knows the tokens of the one before, gives what the plain one
gives: tokens, texts, log-probabilities and ends. In float64, where rounding decides nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.job import FinishReason, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.load import LoadedModel
from tests.engine.overlap_cases import EOS, Job, assert_alike, assert_same, configs, jobs, make_engine, num_pages, play

pytestmark = pytest.mark.usefixtures("many_engines")


@settings(deadline=None, max_examples=60)
@given(config=configs, mix=st.lists(jobs, min_size=1, max_size=8), num_pages=num_pages)
def test_every_job_gets_what_the_plain_loop_gives_it(
    little: LoadedModel, config: SchedulerConfig, mix: list[Job], num_pages: int
) -> None:
    plain, overlapped = (play(little, config, num_pages, mix, max_steps) for max_steps in (1, 2))
    for number, job in enumerate(mix):
        check = assert_alike if job.may_differ else assert_same
        check(overlapped.answer(number), plain.answer(number))
    assert plain.wasted.total() == 0


GREEDY = SamplingParams(max_tokens=14, temperature=0.0, ignore_eos=True)
PENALISED = SamplingParams(max_tokens=14, repetition_penalty=1.3, frequency_penalty=0.9, ignore_eos=True, logprobs=2)


def make_job(sampling: SamplingParams = GREEDY, own: int = 12, **fields: object) -> Job:
    defaults = {"leaves_at": None, "leaves_with": None, "is_withdrawn": False, "stream": True}
    return Job(gap=0, tenant="acme", prefix=8, own=own, sampling=sampling, **{**defaults, **fields})  # type: ignore[arg-type]


def test_preemptions_change_nothing(little: LoadedModel) -> None:
    mix = [make_job(PENALISED if number % 2 else GREEDY, own=10 + number) for number in range(6)]
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=40, page_watermark_low=0, page_watermark_high=0)
    plain, overlapped = (play(little, config, 20, mix, max_steps) for max_steps in (1, 2))
    for number in range(len(mix)):
        assert_same(overlapped.answer(number), plain.answer(number))
    assert overlapped.engine.report().scheduler.num_preemptions_total > 0
    assert overlapped.wasted.total() == 0  # all ends were known


def test_an_end_by_a_token_wastes_a_row_and_shows_nothing_of_it(little: LoadedModel) -> None:
    mix = [make_job(SamplingParams(max_tokens=14, logit_bias=((EOS, 100.0),))), make_job()]
    overlapped = play(little, SchedulerConfig(), 40, mix, 2)
    answer = overlapped.answer(0)
    assert (answer.token_ids, answer.reason, answer.num_output_tokens) == ((EOS,), FinishReason.STOP, 1)
    assert sorted(overlapped.wasted.values()) == [0, 1]


def test_a_first_token_does_not_wait_for_a_step_that_does_not_come(little: LoadedModel) -> None:
    engine = make_engine(little, SchedulerConfig(), 40, 2)
    engine.submit(make_job(replace(GREEDY, max_tokens=1)).submit(0), 0.0)
    (output,) = engine.step(1.0).outputs
    assert output.finish_reason is FinishReason.LENGTH
    assert not engine.has_work


def test_every_step_is_reported_once_with_its_own_numbers(little: LoadedModel) -> None:
    engine = make_engine(little, SchedulerConfig(), 40, 2)
    engine.submit(make_job(replace(GREEDY, max_tokens=4)).submit(0), 0.0)
    steps = []
    while engine.has_work:
        steps.append(engine.step(float(len(steps))).step)
    assert [(step.number, step.num_prefill_tokens, step.num_decode_tokens) for step in steps if step] == [
        (1, 20, 0),
        (2, 0, 1),
        (3, 0, 1),
        (4, 0, 1),
    ]
    assert engine.step(9.0).step is None
