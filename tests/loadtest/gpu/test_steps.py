"""Decode steps beside their floor."""

from __future__ import annotations

import time

import pytest

from headway.core.job import JobKey, SamplingParams
from headway.engine.messages import Submit
from loadtest.gpu import steps
from loadtest.gpu.bench import Sizes
from loadtest.gpu.checks import Verdict
from loadtest.gpu.decoding import Window, decoding
from loadtest.gpu.run import run_parts


def test_every_batch_size_has_a_step_and_a_floor(any_bench):
    checks = run_parts(any_bench, [steps.PART], lambda check: None)
    assert [check.item.name for check in checks] == ["decode step of 1 × 40 tokens", "decode step of 3 × 40 tokens"]
    for check in checks:
        assert check.verdict in (Verdict.PASSED, Verdict.FAILED)
        assert set(check.figures) == set(steps.FIGURES)
        assert check.figures["step_seconds"] >= check.figures["floor_seconds"] > 0
    assert not any_bench.engine.has_work


def test_large_batches_have_no_aim(make_bench):
    aims = {item.name: item.aim for item in steps.items(make_bench(batch_sizes=(64, 256)))}
    assert aims == {"decode step of 64 × 40 tokens": steps.MAX_TIMES_FLOOR, "decode step of 256 × 40 tokens": None}


def test_a_window_counts_what_came_out_and_how_long_contexts_were(any_bench):
    with decoding(any_bench.engine, 3, 40, max_output_len=60) as sequences:
        first, second = sequences.window(4), sequences.window(4)
    assert (first.num_tokens, second.num_tokens) == (12, 12)
    assert second.context_tokens - first.context_tokens == 4
    assert first.context_tokens > 40 + 8
    assert not any_bench.engine.has_work


def test_a_sequence_that_ends_is_noticed_and_the_engine_left_idle(any_bench):
    with (
        pytest.raises(RuntimeError, match="ended too early"),
        decoding(any_bench.engine, 2, 10, max_output_len=15) as both,
    ):
        both.window(10)
    assert not any_bench.engine.has_work


def test_what_was_not_measured_is_not_computed(any_bench):
    with decoding(any_bench.engine, 3, 10, max_output_len=400):
        before = any_bench.engine.report().scheduler.num_busy_slots_total
    assert any_bench.engine.report().scheduler.num_busy_slots_total - before <= 2 * 3


def test_an_idle_engine_takes_other_work_afterwards(any_bench):
    with decoding(any_bench.engine, 2, 10, max_output_len=50):
        pass
    any_bench.engine.submit(Submit(JobKey("x", "1"), SamplingParams(max_tokens=2), (1, 2, 3), None), time.monotonic())
    outputs = []
    while any_bench.engine.has_work:
        outputs += any_bench.engine.step(time.monotonic()).outputs
    assert {output.key.tenant for output in outputs} == {"x"}


def test_a_step_takes_what_a_token_of_each_sequence_takes():
    windows = [Window(1.0, 40, 10.0), Window(2.0, 40, 10.0), Window(0.9, 40, 10.0)]
    assert steps.step_seconds(windows, batch_size=4) == pytest.approx(0.1)
    # A call that brings no tokens is no step: 5 of them were needed for what 4 steps give.
    assert steps.step_seconds([Window(1.0, 16, 10.0)], batch_size=4) == pytest.approx(0.25)


@pytest.mark.parametrize("batch_size", Sizes().batch_sizes)
def test_answers_outlast_what_is_measured_of_them(batch_size):
    sizes = Sizes()
    num_prefill_steps = -(-batch_size * sizes.context_len // (sizes.num_step_tokens - batch_size))
    assert sizes.max_output_len(batch_size) > num_prefill_steps + 8 + sizes.num_windows * sizes.steps_per_window


def test_pages_hold_the_largest_batch_and_a_long_prompt():
    sizes = Sizes()
    tokens = sizes.kv_bytes / sizes.model.kv_bytes_per_token
    assert tokens > 256 * (1024 + sizes.max_output_len(256)) * 1.1
    assert tokens > sizes.num_prompt_tokens
    assert sizes.kv_bytes < 65e9, "a GPU of 141 GB has room for two models and another engine's pages beside it"
