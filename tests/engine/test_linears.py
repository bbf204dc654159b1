"""Rewritten models compute what the plain ones do, whatever the architecture."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
)

from headway.engine.config import EngineConfig
from headway.engine.linears import Rewrite, rewrite_linears
from headway.engine.load import cache_folder
from headway.engine.merged_linear import LinearPart
from headway.engine.native.kernels import use_native_kernels
from headway.engine.native_linear import NativeLinear
from headway.engine.packed_linear import PackedLinear, can_pack

SIZES = {"vocab_size": 199, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OPTIONS = {"initializer_range": 0.3, "tie_word_embeddings": False, "max_position_embeddings": 64}
GATED = {**SIZES, **OPTIONS, "intermediate_size": 48, "num_key_value_heads": 2}
QKV, GATE_UP = {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}
KINDS: dict[str, tuple[PretrainedConfig, set[str]]] = {
    "llama": (LlamaConfig(**GATED), QKV | GATE_UP),
    "llama with biases": (LlamaConfig(**GATED, attention_bias=True, mlp_bias=True), QKV | GATE_UP),
    "llama with tied embeddings": (LlamaConfig(**{**GATED, "tie_word_embeddings": True}), QKV | GATE_UP),
    "qwen2": (Qwen2Config(**GATED), QKV | GATE_UP),
    "qwen3": (Qwen3Config(**GATED, head_dim=16), QKV | GATE_UP),
    "gemma3": (Gemma3TextConfig(**GATED, head_dim=16, query_pre_attn_scalar=16, sliding_window=24), QKV | GATE_UP),
    "gpt2": (GPT2Config(**SIZES, **OPTIONS), set()),
    "gpt-neox": (GPTNeoXConfig(**SIZES, **OPTIONS, intermediate_size=48), set()),
    "gpt-oss": (GptOssConfig(**GATED, head_dim=16, num_local_experts=4, num_experts_per_tok=2), QKV),
    "mixtral": (MixtralConfig(**GATED, num_local_experts=4, num_experts_per_tok=2), QKV),
    "qwen2-moe": (
        Qwen2MoeConfig(**GATED, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=24),
        QKV | GATE_UP,
    ),
    "deepseek": (
        DeepseekV3Config(
            **{**GATED, "num_key_value_heads": 4},
            **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
            **{
                "first_k_dense_replace": 1,
                "moe_intermediate_size": 16,
                "n_routed_experts": 4,
                "num_experts_per_tok": 2,
            },
            **{"n_group": 2, "topk_group": 1},
        ),
        {"q_a_proj", "kv_a_proj_with_mqa"} | GATE_UP,
    ),
}
LENGTHS = (1, 7, 40)


def build_plain(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    layer.weight.copy_(weight)
    if bias is not None:
        layer.bias.copy_(bias)
    return layer


def make_model(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(3)
    config = copy.deepcopy(KINDS[kind][0])
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.set_experts_implementation("eager")
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


def rewrite(model: PreTrainedModel, build: Callable[[Tensor, Tensor | None], nn.Module] = build_plain) -> Rewrite:
    return rewrite_linears(model, lambda: logits(model, 2), build)


@torch.no_grad()
def logits(model: PreTrainedModel, num_tokens: int) -> Tensor:
    ids = torch.arange(num_tokens)[None] * 37 % 199
    return model(input_ids=ids, use_cache=False).logits


def parts(model: nn.Module) -> set[str]:
    return {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, LinearPart)}


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_share_their_input_are_merged_and_the_model_computes_the_same(kind: str) -> None:
    plain = make_model(kind, torch.float64)
    merged = copy.deepcopy(plain)
    result = rewrite(merged)
    assert result.obstacle is None
    assert result.num_linears >= 1
    assert parts(merged) == KINDS[kind][1]
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
