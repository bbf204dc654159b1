"""Rewritten models compute what the plain ones do, whatever the architecture."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headway.engine.cache_folder import cache_folder
from headway.engine.config import EngineConfig
from headway.engine.int8_linear import Int8Linear
from headway.engine.linears import Rewrite, rewrite_linears
from headway.engine.merged_linear import LinearPart
from headway.engine.native.kernels import use_native_kernels
from headway.engine.native_linear import NativeLinear
from headway.engine.packed_linear import PackedLinear, can_pack
from tests.engine.model_kinds import KINDS, logits, make_model

LENGTHS = (1, 7, 40)


def build_plain(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    layer.weight.copy_(weight)
    if bias is not None:
        layer.bias.copy_(bias)
    return layer


def rewrite(model: PreTrainedModel, build: Callable[[Tensor, Tensor | None], nn.Module] = build_plain) -> Rewrite:
    return rewrite_linears(model, lambda: logits(model, 2), build)


def parts(model: nn.Module) -> set[str]:
    return {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, LinearPart)}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_share_their_input_are_merged_and_the_model_computes_the_same(kind: str) -> None:
    plain = make_model(kind, torch.float64)
    merged = copy.deepcopy(plain)
    result = rewrite(merged)
    assert result.obstacle is None
    assert result.num_linears >= 1
    assert parts(merged) == KINDS[kind].merged
    for num_tokens in LENGTHS:
        torch.testing.assert_close(logits(merged, num_tokens), logits(plain, num_tokens), rtol=1e-11, atol=1e-11)


PACKED = {
    "oneDNN bfloat16": (PackedLinear, torch.bfloat16),
    "oneDNN float32": (PackedLinear, torch.float32),
    "native bfloat16": (NativeLinear, torch.bfloat16),
}


@pytest.mark.parametrize("layer", PACKED)
@pytest.mark.parametrize("kind", KINDS)
def test_packing_is_as_exact_as_the_plain_layers(kind: str, layer: str) -> None:
    build, dtype = PACKED[layer]
    if build is PackedLinear and not can_pack(dtype, torch.device("cpu")):
        pytest.skip("not packed on this CPU")
    if build is NativeLinear and not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")
    plain = make_model(kind, dtype)
    exact, packed = copy.deepcopy(plain).double(), copy.deepcopy(plain)
    assert rewrite(packed, build).num_linears >= 1
    for num_tokens in LENGTHS:
        reference = logits(exact, num_tokens)
        allowed = 3 * (logits(plain, num_tokens).double() - reference).norm() + 1e-6 * reference.norm()
        assert (logits(packed, num_tokens).double() - reference).norm() <= allowed


@pytest.mark.parametrize("kind", KINDS)
def test_int8_comes_close_on_every_architecture(kind: str) -> None:
    if not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")
    plain = make_model(kind, torch.float32)
    quantised = copy.deepcopy(plain)
    assert rewrite(quantised, Int8Linear).num_linears >= 1
    for num_tokens in LENGTHS:
        reference = logits(plain, num_tokens)
        assert (logits(quantised, num_tokens) - reference).norm() <= 0.15 * reference.norm(), (
            "more than a few experts that were chosen otherwise"
        )


def test_the_plain_weights_are_gone() -> None:
    model = make_model("llama with tied embeddings", torch.float32)
    weights = [weakref.ref(module.weight) for module in model.modules() if isinstance(module, nn.Linear)]
    embedding = weakref.ref(model.get_input_embeddings().weight)
    build = PackedLinear if can_pack(torch.float32, torch.device("cpu")) else build_plain
    rewrite(model, build)
    left = {id(weight()) for weight in weights if weight() is not None}
    assert left == {id(embedding())}, "only the embedding, which the head was tied to, stays"


def test_weights_go_one_by_one() -> None:
    """At no time is more than one group in memory twice."""
    model = make_model("llama", torch.float32)
    weights = [weakref.ref(module.weight) for module in model.modules() if isinstance(module, nn.Linear)]
    num_built, most_at_once = 0, 0

    def build(weight: Tensor, bias: Tensor | None) -> nn.Module:
        nonlocal num_built, most_at_once
        layer = build_plain(weight, bias)
        num_built += layer.weight.shape[0]
        num_left = sum(plain.shape[0] for plain in (weight() for weight in weights) if plain is not None)
        most_at_once = max(most_at_once, num_built + num_left - num_rows)
        return layer

    num_rows = sum(weight().shape[0] for weight in weights)
    rewrite(model, build)
    assert most_at_once == model.lm_head.weight.shape[0], "the widest"


def test_tied_embeddings_still_look_tokens_up() -> None:
    model = make_model("llama with tied embeddings", torch.float64)
    before = model.get_input_embeddings().weight.clone()
    rewrite(model)
    assert torch.equal(model.get_input_embeddings().weight, before)
    assert torch.equal(model.lm_head.weight, before)


class Odd(nn.Module):
    """Does with its layers what a test chooses."""

    def __init__(self, forward: Callable[[Odd, Tensor], Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self._forward = forward

    def forward(self, rows: Tensor) -> Tensor:
        return self._forward(self, rows)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda odd, x: odd.one(x.to(odd.one.weight.dtype)), "weight"),
        (lambda odd, x: odd.one(x).view(-1) + odd.two(x).view(-1), "view"),
    ],
    ids=["reads a weight", "flattens rows"],
)
def test_a_model_whose_code_minds_is_left_as_it_is(forward: Callable[[Odd, Tensor], Tensor], reason: str) -> None:
    model = Odd(forward)
    layers = [model.one, model.two]
    rows = torch.randn(3, 4)
    result = rewrite_linears(model, lambda: model(rows), build_plain)
    assert reason in str(result.obstacle)
    assert result.num_linears == 0
    assert [model.one, model.two] == layers


def test_a_layer_without_a_bias_may_be_merged_with_one_that_has_one() -> None:
    model = Odd(lambda odd, x: odd.one(x) * odd.two(x))
    rows = torch.randn(3, 4)
    expected = model(rows)
    assert rewrite_linears(model, lambda: model(rows), build_plain) == Rewrite(num_linears=2, num_merged=2)
    torch.testing.assert_close(model(rows), expected)
