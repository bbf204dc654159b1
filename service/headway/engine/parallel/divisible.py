"""Whether a model can be divided among so many ranks: known from its config, before anything large is read."""

from __future__ import annotations

import math

from transformers import PretrainedConfig

from headway.core.errors import SettingError
from headway.engine.config import EngineConfig

PER_HEAD = {"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value"}
"""Linear layers whose outputs are heads, end to end."""
BY_HEADS = "colwise"
"""The style of transformers' plans that leaves each rank its own columns; with others every rank has all heads."""


def check_divisible(stated: PretrainedConfig, config: EngineConfig) -> None:
    """Raises ``SettingError`` if transformers has no plan for the model, or its heads do not come out even."""
    size = config.tensor_parallel_size
    if size == 1:
        return
    text = stated.get_text_config()
    if not text.base_model_tp_plan:
        fix = f"transformers has no plan to divide models of the type {stated.model_type} (tp_plan); use 1"
        raise SettingError("tensor_parallel_size", size, fix)
    heads = {name: getattr(text, f"num_{name}_heads", None) for name in ("attention", "key_value")}
    known = {name: count for name, count in heads.items() if isinstance(count, int)}
    if _divides_heads(text.base_model_tp_plan) and any(count % size for count in known.values()):
        counts = " and ".join(f"{count} {name.replace('_', '/')} heads" for name, count in known.items())
        possible = [str(number) for number in range(1, size + 1) if not math.gcd(*known.values()) % number]
        fix = f"must divide the heads of the model, which has {counts}; use {' or '.join(possible)}"
        raise SettingError("tensor_parallel_size", size, fix)


def _divides_heads(plan: dict[str, str]) -> bool:
    return any(name.rpartition(".")[2] in PER_HEAD and style == BY_HEADS for name, style in plan.items())
