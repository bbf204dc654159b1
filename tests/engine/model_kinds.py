"""Small random models of many architectures, and what each lets the engine rewrite."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    DeepseekV3Config,
    Gemma3TextConfig,
    GlmConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
)

SIZES = {"vocab_size": 199, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OPTIONS = {"initializer_range": 0.3, "tie_word_embeddings": False, "max_position_embeddings": 64}
GATED = {**SIZES, **OPTIONS, "intermediate_size": 48, "num_key_value_heads": 2}
QKV, GATE_UP = {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}


@dataclass(frozen=True)
class ModelKind:
    config: PretrainedConfig
    merged: set[str] = field(default_factory=set)
    """Names of the layers that share their input with others."""
    num_norms: int = 0
    """That the pointwise ops can express."""
    num_gates: int = 0
    has_rotary: bool = False


KINDS: dict[str, ModelKind] = {
    "llama": ModelKind(LlamaConfig(**GATED), QKV | GATE_UP, 5, 2, True),
    "llama with biases": ModelKind(LlamaConfig(**GATED, attention_bias=True, mlp_bias=True), QKV | GATE_UP, 5, 2, True),
    "llama with tied embeddings": ModelKind(
        LlamaConfig(**{**GATED, "tie_word_embeddings": True}), QKV | GATE_UP, 5, 2, True
    ),
    "qwen2": ModelKind(Qwen2Config(**GATED), QKV | GATE_UP, 5, 2, True),
    "qwen3": ModelKind(Qwen3Config(**GATED, head_dim=16), QKV | GATE_UP, 9, 2, True),
    "gemma3": ModelKind(
        Gemma3TextConfig(**GATED, head_dim=16, query_pre_attn_scalar=16, sliding_window=24), QKV | GATE_UP, 13, 2, True
    ),
    "phi3, whose gate and up are one layer": ModelKind(Phi3Config(**GATED, pad_token_id=None), set(), 5, 2, True),
    "olmo2, whose norms are wider than a head": ModelKind(Olmo2Config(**GATED), QKV | GATE_UP, 9, 2, True),
    "cohere, whose norms subtract the mean and whose pairs interleave": ModelKind(
        CohereConfig(**GATED), QKV | GATE_UP, 0, 2, False
    ),
    "glm, which turns every second element": ModelKind(
        GlmConfig(**GATED, head_dim=8, pad_token_id=None), QKV, 5, 2, False
    ),
    "gpt2": ModelKind(GPT2Config(**SIZES, **OPTIONS)),
    "gpt-neox": ModelKind(GPTNeoXConfig(**SIZES, **OPTIONS, intermediate_size=48), has_rotary=True),
    "gpt-oss": ModelKind(GptOssConfig(**GATED, head_dim=16, num_local_experts=4, num_experts_per_tok=2), QKV, 5),
    "mixtral": ModelKind(MixtralConfig(**GATED, num_local_experts=4, num_experts_per_tok=2), QKV, 5, 0, True),
    "qwen2-moe": ModelKind(
        Qwen2MoeConfig(**GATED, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=24),
        QKV | GATE_UP,
        5,
        2,
        True,
    ),
    "deepseek": ModelKind(
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
        9,
        2,
        True,
    ),
}


def make_model(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(3)
    config = copy.deepcopy(KINDS[kind].config)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model.set_experts_implementation("eager")
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


@torch.no_grad()
def logits(model: PreTrainedModel, num_tokens: int) -> Tensor:
    ids = torch.arange(num_tokens)[None] * 37 % 199
    return model(input_ids=ids, use_cache=False).logits
