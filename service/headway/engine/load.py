"""Finds, loads and checks a model.

Whatever names the model ends as a folder or a hub id that transformers loads, with our attention in place of its own.
With ``tensor_parallel_size`` each process reads from the safetensors files what its shard needs, and no more
(`headway.engine.parallel`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.distributed import DistributedConfig
from transformers.utils.logging import disable_progress_bar

from headway.core.errors import SettingError
from headway.engine.attention import ATTENTION_NAME
from headway.engine.builtin_models import BUILTIN_MODELS, builtin_gguf, did_you_mean
from headway.engine.cache_folder import cache_folder
from headway.engine.config import DType, EngineConfig
from headway.engine.cpu_rewrite import rewrite_for_cpu
from headway.engine.device import choose_device
from headway.engine.device_memory import bytes_taken_by_others
from headway.engine.gguf import converted_folder
from headway.engine.gpu_rewrite import rewrite_for_gpu
from headway.engine.hub import announce_download
from headway.engine.measure import LayerShape, check_pattern, measure_layers
from headway.engine.parallel.divisible import check_divisible
from headway.engine.parallel.group import first_rank_first

Progress = Callable[[str], None]

A_MODEL_IS = "give a folder as from the Hugging Face hub, a GGUF file (*.gguf), an id of the hub, or smollm2"
LENGTH_DEPENDENT_ROPES = {"dynamic", "longrope"}
"""Position codes that change for a whole batch once one sequence exceeds the original length."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, and what the engine must know of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    """None only for models that are built in memory."""
    eos_token_ids: frozenset[int]
    max_model_len: int
    """Most tokens of a sequence: the model's own limit or the setting, whichever is less."""
    model_id: str
    layers: tuple[LayerShape, ...]
    bytes_taken_before: int = 0
    """Of a GPU's memory, by others."""

    @property
    def config(self) -> PretrainedConfig:
        """Of the language model, if the model has other parts too."""
        return self.model.config.get_text_config()

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device


def load_model(config: EngineConfig, progress: Progress) -> LoadedModel:
    """Raises ``SettingError`` for a model that cannot be found, read or served, ``EngineError`` if the hub cannot be
    reached. Sets torch's threads."""
    _set_threads(config)
    disable_progress_bar()
    device = choose_device(config)
    bytes_taken_before = bytes_taken_by_others(device)
    with first_rank_first():  # it may have to convert a file
        source = model_source(config, progress)
    progress(f"loading {config.model}")
    options = {"cache_dir": _hub_folder(config), "trust_remote_code": config.trust_remote_code}
    try:
        stated = AutoConfig.from_pretrained(source, **options)
        check_divisible(stated, config)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=_dtype(config, stated, device),
            attn_implementation=ATTENTION_NAME,
            use_safetensors=True,
            **_placement(config, device),
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as exc:
        raise SettingError("model", config.model, f"cannot be loaded: {exc}{did_you_mean(config.model)}") from exc
    return replace(prepare(model, tokenizer, config, progress), bytes_taken_before=bytes_taken_before)


def prepare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, config: EngineConfig, progress: Progress
) -> LoadedModel:
    """Checks a model that is in memory already, with our attention, and measures it. Raises ``SettingError``."""
    model.eval()
    if model.dtype == torch.float64:
        # The grouped matrix multiplication that experts use by default knows no float64.
        model.set_experts_implementation("eager")
    check_pattern(model, config)
    layers = measure_layers(model, config)
    if config.tensor_parallel_size == 1:  # transformers has changed the forwards of a divided model's linear layers
        rewrite_for_cpu(model, config, cache_folder(config), progress)
        rewrite_for_gpu(model, config, progress)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        eos_token_ids=_eos_token_ids(model, tokenizer),
        max_model_len=_max_model_len(model, config, progress),
        model_id=config.model,
        layers=layers,
    )


def model_source(config: EngineConfig, progress: Progress) -> str:
    """What transformers loads the model from: a folder, or else a hub id. A GGUF file is converted, once."""
    path = builtin_gguf(config.model) if config.model in BUILTIN_MODELS else Path(config.model).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise SettingError("model", config.model, "there is no such file")
        return str(converted_folder(path, cache_folder(config), progress))
    if path.is_dir():
        return str(path)
    if path.is_file():
        raise SettingError("model", config.model, f"is a file that is no GGUF; {A_MODEL_IS}")
    if path.is_absolute() or config.model.startswith((".", "~")) or config.model.count("/") > 1:
        raise SettingError("model", config.model, f"there is no such folder; {A_MODEL_IS}")
    announce_download(config.model, _hub_folder(config), progress)
    return config.model


def _hub_folder(config: EngineConfig) -> str | None:
    """None: where other programs keep their downloads from the hub, too."""
    return None if config.cache_folder is None else str(cache_folder(config) / "hub")


def _set_threads(config: EngineConfig) -> None:
    """Ranks that compute on one CPU share its cores."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    elif config.tensor_parallel_size > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // config.tensor_parallel_size))


def _placement(config: EngineConfig, device: torch.device) -> dict[str, Any]:
    """What transformers needs to know to put the weights where they belong: all on one device, or a shard of them."""
    if config.tensor_parallel_size == 1:
        return {"device_map": {"": device}}
    return {"distributed_config": DistributedConfig(tp_size=config.tensor_parallel_size)}


def _dtype(config: EngineConfig, stated: PretrainedConfig, device: torch.device) -> torch.dtype:
    if config.dtype != DType.AUTO:
        dtype: torch.dtype = getattr(torch, config.dtype)
        return dtype
    own = stated.get_text_config().dtype
    if not isinstance(own, torch.dtype):
        own = torch.float32
    if device.type == "cuda" or own.itemsize > 2:
        return own
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """As transformers' generate() has them: the generation config's, which falls back on the model config's."""
    stated = model.generation_config.eos_token_id if model.generation_config is not None else None
    if stated is None and tokenizer is not None:
        stated = tokenizer.eos_token_id
    ids = stated if isinstance(stated, list) else [stated] if stated is not None else []
    # One that the model cannot say has no logit to be masked below min_tokens either.
    return frozenset(token for token in ids if 0 <= token < model.config.get_text_config().vocab_size)


def _max_model_len(model: PreTrainedModel, config: EngineConfig, progress: Progress) -> int:
    text = model.config.get_text_config()
    limit = getattr(text, "max_position_embeddings", None)
    rope = getattr(text, "rope_parameters", None) or {}
    original = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") in LENGTH_DEPENDENT_ROPES and original:
        progress(f"{rope['rope_type']} positions: limited to the original {original} tokens")
        limit = original
    limits = [int(value) for value in (limit, config.max_model_len) if value]
    if not limits:
        raise SettingError("max_model_len", None, f"{config.model} states no limit of its own; set one")
    return min(limits)
