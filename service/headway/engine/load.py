"""Finds, loads and checks a model.

Whatever names the model ends as a folder or a hub id that transformers loads, with our attention in place of its own.
What the engine must know of it (key and value heads per layer) is measured with one forward of one token rather than
read from the config, because configs spell it in as many ways as there are families; the same forward shows that
the model calls our attention in every layer. Models that would run but give wrong answers (attention patterns that only
a mask expresses) are refused by name.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from headway.core.errors import EngineError, SettingError
from headway.engine.attention import ATTENTION_NAME, LayerCall
from headway.engine.builtin_models import BUILTIN_MODELS, builtin_gguf, did_you_mean
from headway.engine.config import AutoOrOff, Device, DType, EngineConfig, Quantization
from headway.engine.fusion import can_fuse, fuse
from headway.engine.gguf import converted_folder
from headway.engine.hub import announce_download
from headway.engine.huge_pages import move_to_huge_pages
from headway.engine.linear_choice import choose_int8, choose_linear
from headway.engine.linears import BuildLinear, rewrite_linears, weight_bytes
from headway.engine.native.kernels import use_native_kernels

Progress = Callable[[str], None]

A_MODEL_IS = "give a folder as from the Hugging Face hub, a GGUF file (*.gguf), an id of the hub, or smollm2"
LAYER_TYPES = {"full_attention", "sliding_attention"}
"""Entries of a config's ``layer_types`` whose attention the op can express."""
LENGTH_DEPENDENT_ROPES = {"dynamic", "longrope"}
"""Position codes that change for a whole batch once one sequence exceeds the original length."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token."""

    num_kv_heads: int
    key_dim: int
    value_dim: int


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
    reached. Sets torch's threads if asked to."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    disable_progress_bar()
    device = _device(config)
    source = model_source(config, progress)
    progress(f"loading {config.model}")
    options = {"cache_dir": _hub_folder(config), "trust_remote_code": config.trust_remote_code}
    try:
        stated = AutoConfig.from_pretrained(source, **options)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=_dtype(config, stated, device),
            attn_implementation=ATTENTION_NAME,
            use_safetensors=True,
            device_map={"": device},
            **options,
        )
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as exc:
        raise SettingError("model", config.model, f"cannot be loaded: {exc}{did_you_mean(config.model)}") from exc
    return prepare(model, tokenizer, config, progress)


def prepare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, config: EngineConfig, progress: Progress
) -> LoadedModel:
    """Checks a model that is in memory already, with our attention, and measures it. Raises ``SettingError``."""
    model.eval()
    if model.dtype == torch.float64:
        # The grouped matrix multiplication that experts use by default knows no float64.
        model.set_experts_implementation("eager")
    _check_pattern(model, config)
    layers = _measure_layers(model, config)
    _replace_linears(model, config, progress)
    _fuse(model, config, progress)
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


def cache_folder(config: EngineConfig) -> Path:
    if config.cache_folder is not None:
        return Path(config.cache_folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"


def _hub_folder(config: EngineConfig) -> str | None:
    """None: where other programs keep their downloads from the hub, too."""
    return None if config.cache_folder is None else str(cache_folder(config) / "hub")


def _device(config: EngineConfig) -> torch.device:
    has_gpu = torch.cuda.is_available()
    if config.device == Device.CUDA and not has_gpu:
        raise SettingError("device", config.device, "torch sees no CUDA GPU here; use cpu or auto")
    use_gpu = has_gpu and config.device != Device.CPU
    return torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")


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


def _check_pattern(model: PreTrainedModel, config: EngineConfig) -> None:
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


def _eos_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """As transformers' generate() has them: the generation config's, which falls back on the model config's."""
    stated = model.generation_config.eos_token_id if model.generation_config is not None else None
    if stated is None and tokenizer is not None:
        stated = tokenizer.eos_token_id
    return frozenset(stated if isinstance(stated, list) else [stated] if stated is not None else [])


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


@dataclass(slots=True)
class _Measure:
    """Answers each layer with zeros and writes down what it would store."""

    layers: dict[int, LayerShape] = field(default_factory=dict)

    def attend(self, call: LayerCall) -> Tensor:
        self.layers[call.layer] = LayerShape(call.key.shape[1], call.key.shape[2], call.value.shape[2])
        return call.query.new_zeros((*call.query.shape[:2], call.value.shape[2]))


@torch.inference_mode()
def _measure_layers(model: PreTrainedModel, config: EngineConfig) -> tuple[LayerShape, ...]:
    measure = _Measure()
    try:
        _run_tokens(model, 1, measure)
    except (EngineError, TypeError) as exc:
        raise SettingError("model", config.model, f"cannot be served with paged attention: {exc}") from exc
    num_layers = model.config.get_text_config().num_hidden_layers
    if sorted(measure.layers) != list(range(num_layers)):
        fix = f"only {len(measure.layers)} of its {num_layers} layers call the attention interface"
        raise SettingError("model", config.model, fix)
    return tuple(measure.layers[index] for index in range(num_layers))


def _run_tokens(model: PreTrainedModel, num_tokens: int, measure: _Measure) -> None:
    positions = torch.arange(num_tokens, device=model.device)[None]
    keywords: dict[str, Any] = {"use_cache": False, "paged": measure}
    model(input_ids=torch.zeros_like(positions), position_ids=positions, **keywords)


def _load_native(config: EngineConfig, progress: Progress) -> bool:
    return config.native_kernels is AutoOrOff.AUTO and use_native_kernels(cache_folder(config), progress)


def _fuse(model: PreTrainedModel, config: EngineConfig, progress: Progress) -> None:
    if model.device.type != "cpu" or not _load_native(config, progress) or not can_fuse(model.dtype, model.device):
        return
    fusion = fuse(model, model.dtype, lambda: _run_tokens(model, 2, _Measure()))
    progress(f"fused {fusion.num_norms} norms and {fusion.num_gates} gated MLPs")


def _replace_linears(model: PreTrainedModel, config: EngineConfig, progress: Progress) -> None:
    arguments = (model.dtype, model.device, lambda: _load_native(config, progress))
    if config.quantization is Quantization.INT8:
        obstacle = _pack_weights(model, choose_int8(*arguments), progress)
        if obstacle is not None:
            raise SettingError("quantization", config.quantization, f"not for this model ({obstacle}); set it to off")
    elif config.pack_weights is AutoOrOff.AUTO and (build := choose_linear(*arguments)):
        obstacle = _pack_weights(model, build, progress)
        if obstacle is not None:
            progress(f"weights stay unpacked: {obstacle}")


def _pack_weights(model: PreTrainedModel, build: BuildLinear, progress: Progress) -> str | None:
    """Why the model stays as it is, if it does."""
    rewrite = rewrite_linears(model, lambda: _run_tokens(model, 2, _Measure()), build)
    if rewrite.num_linears == 0:
        return rewrite.obstacle or "it calls no linear layers"
    # Also because checkpoints are mapped, not read: all of a file counts as ours as long as one tensor lies in it.
    move_to_huge_pages([*model.parameters(), *model.buffers()])
    progress(
        f"packed the weights of {rewrite.num_linears} linear layers, {rewrite.num_merged} of them merged; "
        f"all weights take {weight_bytes(model) / 1e6:.0f} MB"
    )
    return None
