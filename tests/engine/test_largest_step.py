"""The step that a GPU's memory is measured with, run for real on a tiny model."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.core.scheduler_config import SchedulerConfig
from headway.engine import filters, largest_step
from headway.engine.forward import DeviceInputs, EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.largest_step import largest_plan, run_largest_step
from headway.engine.load import LoadedModel
from headway.engine.step_inputs import build_step_inputs

SCHEDULING = SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=100)


@given(num_sequences=st.integers(1, 40), num_more=st.integers(0, 500), max_model_len=st.integers(2, 300))
def test_it_is_as_large_as_the_settings_and_the_model_allow(
    num_sequences: int, num_more: int, max_model_len: int
) -> None:
    num_tokens = num_sequences + num_more
    scheduling = SchedulerConfig(max_num_seqs=num_sequences, max_num_batched_tokens=num_tokens)
    plan = largest_plan(scheduling, max_model_len, page_size=16, vocab_size=50)
    inputs = build_step_inputs(plan, page_size=16)
    if num_tokens <= num_sequences * (max_model_len - 1):
        assert plan.num_tokens == num_tokens
    assert plan.num_tokens <= num_tokens
    assert len(inputs.sampled_rows) == len(plan.chunks) == num_sequences
    assert inputs.page_table.shape == (num_sequences, -(-max_model_len // 16))
    assert inputs.context_lens.max() == max_model_len
    assert inputs.slot_mapping.max() < 16
    assert inputs.token_ids.max() < 50


@dataclass
class Seen:
    """What a profiled model was run with, and what of it is still there."""

    tokens: list[int] = field(default_factory=list)
    logits: list[tuple[int, ...]] = field(default_factory=list)
    caches: list[weakref.ref[KvCache]] = field(default_factory=list)
    num_sorted: int = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Watches forwards and sorts."""
    seen = Seen()

    class WatchedForward(EagerForward):
        def __init__(self, loaded: LoadedModel, cache: KvCache) -> None:
            super().__init__(loaded, cache)
            seen.caches.append(weakref.ref(cache))

        def __call__(self, inputs: DeviceInputs) -> Tensor:
            logits = super().__call__(inputs)
            seen.tokens.append(len(inputs.token_ids))
            seen.logits.append(tuple(logits.shape))
            return logits

    search = filters._search

    def watched_search(weights: Tensor, candidates: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
        seen.num_sorted += len(candidates) if candidates.shape[1] == weights.shape[1] else 0
        return search(weights, candidates, *rest)

    monkeypatch.setattr(largest_step, "EagerForward", WatchedForward)
    monkeypatch.setattr(filters, "_search", watched_search)
    return seen


def test_it_runs_at_the_limits_with_all_that_a_job_can_ask_for(tiny: LoadedModel, seen: Seen) -> None:
    run_largest_step(tiny, SCHEDULING, 16)
    assert seen.tokens == [100, 100]
    assert seen.logits == [(6, tiny.vocab_size)] * 2
    assert seen.num_sorted == 2 * 6  # whole vocabularies


def test_it_leaves_nothing_behind(tiny: LoadedModel, seen: Seen) -> None:
    before = {name: tensor.clone() for name, tensor in tiny.model.state_dict().items()}
    run_largest_step(tiny, SCHEDULING, 16)
    gc.collect()
    assert [cache() for cache in seen.caches] == [None]
    assert all(torch.equal(before[name], tensor) for name, tensor in tiny.model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in tiny.model.modules())


def test_one_sequence_that_is_shorter_than_a_step_is_taken_whole(tiny: LoadedModel, seen: Seen) -> None:
    scheduling = SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=100)
    run_largest_step(replace(tiny, max_model_len=40), scheduling, 16)
    assert seen.tokens == [40, 40]
