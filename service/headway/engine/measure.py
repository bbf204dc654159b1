"""What the engine must know of a model in memory, found by one forward of one token instead of read from its config.

Configs spell the heads of keys and values in as many ways as there are families, and say nothing of what a process
holds of them if the model is divided. The same forward shows that the model calls our attention in every layer. Models
that would run but give wrong answers (attention patterns that only a mask expresses) are refused by name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headway.core.errors import EngineError, SettingError
from headway.engine.attention import LayerCall
from headway.engine.config import EngineConfig

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""Entries of a config's ``layer_types`` whose attention the op can express."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token, in this process."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(slots=True)
class _Measure:
    """Answers each layer with zeros and writes down what it would store."""

    layers: dict[int, LayerShape] = field(default_factory=dict)

    def attend(self, call: LayerCall) -> Tensor:
        self.layers[call.layer] = LayerShape(call.key.shape[1], call.key.shape[2], call.value.shape[2])
        return call.query.new_zeros((*call.query.shape[:2], call.value.shape[2]))


def check_pattern(model: PreTrainedModel, config: EngineConfig) -> None:
    """Raises ``SettingError`` for a model whose attention the op cannot express."""
    text = model.config.get_text_config()
    unknown = set(getattr(text, "layer_types", None) or ()) - LAYER_TYPES
    if unknown:
        raise SettingError(
            "model", config.model, f"has layers of kinds that are not served: {', '.join(sorted(unknown))}"
        )
    if model.config.is_encoder_decoder or getattr(text, "use_bidirectional_attention", None):
        raise SettingError("model", config.model, "is not a causal language model")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise SettingError("model", config.model, "its forward cannot compute logits for chosen rows (logits_to_keep)")


@torch.inference_mode()
def measure_layers(model: PreTrainedModel, config: EngineConfig) -> tuple[LayerShape, ...]:
    """Raises ``SettingError`` for a model that does not call our attention in every layer."""
    try:
        layers = run_tokens(model, 1)
    except (EngineError, TypeError) as exc:
        raise SettingError("model", config.model, f"cannot be served with paged attention: {exc}") from exc
    num_layers = model.config.get_text_config().num_hidden_layers
    if sorted(layers) != list(range(num_layers)):
        fix = f"only {len(layers)} of its {num_layers} layers call the attention interface"
        raise SettingError("model", config.model, fix)
    return tuple(layers[index] for index in range(num_layers))


def run_tokens(model: PreTrainedModel, num_tokens: int) -> dict[int, LayerShape]:
    """A forward without pages. Returns what each layer that calls our attention would store."""
    measure = _Measure()
    positions = torch.arange(num_tokens, device=model.device)[None]
    keywords: dict[str, Any] = {"use_cache": False, "paged": measure}
    model(input_ids=torch.zeros_like(positions), position_ids=positions, **keywords)
    return measure.layers
