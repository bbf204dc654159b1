from __future__ import annotations

from collections.abc import Sequence as Rows
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.config import Device, EngineConfig
from headway.engine.forward import EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import load_model
from headway.engine.runner import Runner
from headway.engine.sampled_rows import SampledRow, SampledTokens
from headway.engine.sampling import Sampler


class WatchedSampler(Sampler):
    """The real sampler, which also notes the shapes of the logits that it is given."""

    def __init__(self) -> None:
        super().__init__(64, torch.device("cpu"))
        self.shapes: list[tuple[int, ...]] = []

    def launch(self, logits: Tensor, rows: Rows[SampledRow]) -> SampledTokens:
        self.shapes.append(tuple(logits.shape))
        return super().launch(logits, rows)


@pytest.fixture
def sampler() -> WatchedSampler:
    return WatchedSampler()


@pytest.fixture
def runner(tiny_llama: Path, sampler: WatchedSampler) -> Runner:
    loaded = load_model(EngineConfig(model=str(tiny_llama), device=Device.CPU), print)
    cache = KvCache(loaded, num_pages=8, page_size=4)
    return Runner(EagerForward(loaded, cache), sampler, loaded.device, cache.page_size)


def make_chunk(number: int, token_ids: list[int], page_table: list[int], start: int, num_tokens: int) -> ScheduledChunk:
    sampling = SamplingParams(temperature=0.0)
    sequence = Sequence(number, JobKey("acme", "a"), sampling, token_ids, len(token_ids), 0.0, page_table=page_table)
    return ScheduledChunk(sequence, start, num_tokens, is_sampled=start + num_tokens == len(token_ids))


def test_an_empty_plan_runs_nothing(runner: Runner, sampler: WatchedSampler) -> None:
    assert runner.run(StepPlan(1, ())).sampled == {}
    assert sampler.shapes == []


def test_a_step_of_unfinished_prompts_samples_nothing(runner: Runner, sampler: WatchedSampler) -> None:
    chunk = make_chunk(1, [5, 6, 7, 8], [2], start=0, num_tokens=3)
    assert runner.run(StepPlan(1, (chunk,))).sampled == {}
    assert sampler.shapes == []


def test_the_head_is_computed_for_sampled_rows_only(runner: Runner, sampler: WatchedSampler) -> None:
    partial = make_chunk(1, [5, 6, 7, 8], [2], start=0, num_tokens=3)
    whole = make_chunk(2, [9, 10, 11, 12, 13], [0, 5], start=0, num_tokens=5)
    other = make_chunk(3, [9], [7], start=0, num_tokens=1)
    assert set(runner.run(StepPlan(1, (partial, whole, other))).sampled) == {2, 3}
    assert sampler.shapes == [(2, 64)]


def test_a_step_can_be_run_again_after_it_failed(runner: Runner) -> None:
    whole = make_chunk(2, [9, 10, 11, 12, 13], [0, 5], start=0, num_tokens=5)
    outside = make_chunk(1, [5, 64], [2], start=0, num_tokens=2)
    expected = runner.run(StepPlan(1, (whole,))).sampled
    with pytest.raises(IndexError):
        runner.run(StepPlan(2, (whole, outside)))
    assert runner.run(StepPlan(3, (whole,))).sampled == expected


def test_a_gpu_that_computes_no_more_is_found_out_even_if_it_gives_no_memory_back(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an illegal access every call of the driver fails, that of freeing memory too."""

    def fail(*_: object, **__: object) -> Tensor:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(runner, "_device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "empty_cache", fail)
    monkeypatch.setattr(torch, "ones", fail)
    runner.free_memory()
    assert not runner.is_device_sound()
