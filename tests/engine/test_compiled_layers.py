from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from headway.engine.attention import ATTENTION_NAME
from headway.engine.compiled.layers import DecoderLayer, NotCompilableError, find_layers, tensor_places
from headway.engine.config import EngineConfig
from headway.engine.load import prepare
from headway.engine.packed_linear import can_pack

SIZES = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "bos_token_id": None}
GATED = {**SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "eos_token_id": None, "pad_token_id": None}
SLIDING = {"sliding_window": 24, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}


def make_model(config: PretrainedConfig) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=ATTENTION_NAME)
    return prepare(model, None, EngineConfig(), print).model


def kinds(layers: list[DecoderLayer]) -> list[int]:
    names = [layer.kind for layer in layers]
    return [names.index(name) for name in names]


@pytest.mark.parametrize("config", [LlamaConfig(**GATED), GPTNeoXConfig(**SIZES, intermediate_size=48)])
def test_the_layers_of_a_plain_model_are_of_one_kind(config: PretrainedConfig) -> None:
    layers = find_layers(make_model(config))
    assert [layer.index for layer in layers] == [0, 1, 2, 3]
    assert kinds(layers) == [0, 0, 0, 0]


def test_sliding_and_full_attention_are_two_kinds() -> None:
    assert kinds(find_layers(make_model(Gemma3TextConfig(**GATED, **SLIDING)))) == [0, 1, 0, 1]


def test_layers_that_scale_by_their_index_are_all_different() -> None:
    config = GPT2Config(**SIZES, n_inner=48, scale_attn_by_inverse_layer_idx=True)
    assert kinds(find_layers(make_model(config))) == [0, 1, 2, 3]


def test_what_grows_with_the_tokens_is_known() -> None:
    layer = find_layers(make_model(LlamaConfig(**GATED)))[0]
    dims = {tensor.path[-1] if tensor.path[0] == 0 else tensor.path[1]: tensor.token_dims for tensor in layer.inputs}
    assert dims == {0: (1,), "position_embeddings": (1,), "position_ids": (1,)}


def test_a_plain_attribute_tells_kinds_apart() -> None:
    model = make_model(LlamaConfig(**GATED))
    model.model.layers[2].input_layernorm.variance_epsilon = 0.5
    assert kinds(find_layers(model)) == [0, 0, 2, 0]


def test_looking_leaves_no_hooks() -> None:
    model = make_model(LlamaConfig(**GATED))
    find_layers(model)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


@pytest.mark.skipif(not can_pack(torch.float32, torch.device("cpu")), reason="this CPU packs nothing")
def test_every_tensor_of_a_packed_layer_is_found() -> None:
    layer = find_layers(make_model(LlamaConfig(**GATED, attention_bias=True)))[1]
    names = sorted(place.name for place in tensor_places(layer.module))
    assert names == ["_bias"] * 2 + ["_blocks"] * 4 + ["weight"] * 2


def test_a_model_whose_layers_are_in_no_list_is_refused() -> None:
    model = make_model(LlamaConfig(**GATED))
    layers = torch.nn.Module()
    layers.__class__ = type("Layers", (torch.nn.Module,), {"__getitem__": lambda self, index: list(self.children())})
    for number, layer in enumerate(model.model.layers):
        layers.add_module(str(number), layer)
    model.model.layers = layers
    with pytest.raises(NotCompilableError, match="outside of a list"):
        find_layers(model)
