"""Rotary positions that the attention op turns: the same model, and only where the model allows it."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headway.engine import attention
from headway.engine.attention import ATTENTION_NAME, LayerCall, PagedBatch
from headway.engine.deferred_rotary import defer_rotary
from headway.engine.paged_reference import paged_attention_reference
from tests.engine.model_kinds import KINDS, logits, make_model

NUM_TOKENS = 40
DEFERS = {kind for kind in KINDS if not kind.startswith(("cohere", "glm", "gpt2", "gpt-oss", "deepseek"))}
"""The others: interleaved pairs twice, no rotary positions, another function, and a rotation of part of a head."""


@dataclass(frozen=True)
class Watched:
    """Pages, and how many layers came with angles."""

    batch: PagedBatch
    angles: list[bool]

    def attend(self, call: LayerCall) -> Tensor:
        self.angles.append(call.cos is not None)
        return self.batch.attend(call)


def ours(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    model = make_model(kind, dtype)
    model.set_attn_implementation(ATTENTION_NAME)
    return model


@torch.no_grad()
def paged_logits(model: PreTrainedModel, num_tokens: int = NUM_TOKENS) -> tuple[Tensor, list[bool]]:
    """And whether each layer's angles came to the op. Any heads: the pages have the model's shapes."""
    shapes = _shapes(model)
    pages = [
        [torch.full((4, 16, heads, dim), torch.nan, dtype=model.dtype) for heads, dim in zip(*shape, strict=True)]
        for shape in shapes
    ]
    batch = PagedBatch(
        key_pages=[keys for keys, _ in pages],
        value_pages=[values for _, values in pages],
        slot_mapping=torch.arange(num_tokens),
        page_table=torch.arange(4, dtype=torch.int32)[None],
        query_start=torch.tensor([0, num_tokens], dtype=torch.int32),
        context_lens=torch.tensor([num_tokens], dtype=torch.int32),
    )
    watched = Watched(batch, [])
    ids = torch.arange(num_tokens)[None] * 37 % 199
    output = model(input_ids=ids, position_ids=torch.arange(num_tokens)[None], use_cache=False, paged=watched)
    return output.logits, watched.angles


@dataclass
class _Shapes:
    found: list[tuple[tuple[int, int], tuple[int, int]]]

    def attend(self, call: LayerCall) -> Tensor:
        heads = call.key.shape[1]
        self.found.append(((heads, heads), (call.key.shape[2], call.value.shape[2])))
        return call.query.new_zeros((*call.query.shape[:2], call.value.shape[2]))


def _shapes(model: PreTrainedModel) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    shapes = _Shapes([])
    ids = torch.zeros(1, 1, dtype=torch.long)
    model(input_ids=ids, position_ids=ids, use_cache=False, paged=shapes)
    return shapes.found


@pytest.fixture(autouse=True)
def exact_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "paged_attention", paged_attention_reference)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_the_same_whoever_turns_its_keys(kind: str) -> None:
    model = ours(kind, torch.float64)
    expected = logits(make_model(kind, torch.float64), NUM_TOKENS)
    num_deferred = defer_rotary(model)
    found, angles = paged_logits(model)
    assert (num_deferred == 2) == all(angles) == (kind in DEFERS)
    assert num_deferred in (0, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_models_in_sixteen_bits_allow_it_too(dtype: torch.dtype) -> None:
    model = ours("llama", dtype)
    expected, _ = paged_logits(model)
    assert defer_rotary(model) == 2
    found, angles = paged_logits(model)
    assert angles == [True, True]
    torch.testing.assert_close(found, expected, rtol=0, atol=0.03 * expected.abs().max().item())


def test_a_rotation_with_something_behind_it_stays_in_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ours("llama", torch.float32)
    function = attention.transformers_attention

    def with_norm(module: object, query: Tensor, key: Tensor, *rest: object, **named: object) -> object:
        return function(module, query / query.norm(dim=-1, keepdim=True), key, *rest, **named)

    attention.AttentionInterface.register("normed", with_norm)
    model.set_attn_implementation("normed")
    assert defer_rotary(model) == 2  # a norm of the head's whole width does not mind being turned

    def with_weights(module: object, query: Tensor, key: Tensor, *rest: object, **named: object) -> object:
        return function(module, query * torch.arange(query.shape[-1]), key, *rest, **named)

    model = ours("llama", torch.float32)
    attention.AttentionInterface.register("weighted", with_weights)
    model.set_attn_implementation("weighted")
    assert defer_rotary(model) == 0


def test_others_who_use_the_model_or_its_file_see_no_difference() -> None:
    model = ours("llama", torch.float32)
    other = make_model("llama", torch.float32)
    expected = logits(other, NUM_TOKENS)
    assert defer_rotary(model) == 2
    assert torch.equal(logits(other, NUM_TOKENS), expected)
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(logits(model, NUM_TOKENS), expected)


def test_a_second_time_changes_nothing() -> None:
    model = ours("llama", torch.float64)
    assert [defer_rotary(model), defer_rotary(model)] == [2, 2]
    expected = logits(make_model("llama", torch.float64), NUM_TOKENS)
    torch.testing.assert_close(paged_logits(model)[0], expected)


def test_the_compiler_traces_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the op itself, which the compiler does not look into
    model = ours("qwen3", torch.float32)
    assert defer_rotary(copy.deepcopy(model)) == 2
    assert defer_rotary(model) == 2
    expected, _ = paged_logits(model)
    torch._dynamo.reset()
    compiled = copy.copy(model)
    compiled.forward = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    found, angles = paged_logits(compiled)
    assert angles[-2:] == [True, True]
    torch.testing.assert_close(found, expected)
