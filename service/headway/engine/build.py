"""Puts an engine together from its two groups of settings."""

from __future__ import annotations

import torch

from headway.core.errors import SettingError
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.engine import Engine
from headway.engine.forward_choice import choose_forward, ways_for
from headway.engine.input_buffers import StepLimits, inputs_for
from headway.engine.kv_cache import KvCache, build_cache
from headway.engine.load import LoadedModel, Progress, cache_folder, load_model
from headway.engine.messages import Ready
from headway.engine.native.kernels import use_native_kernels
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.tokenizer import Tokenizer
from headway.engine.triton_kernels.kernels import use_triton_kernels

CPU_STEP_TOKENS = 512
"""A CPU computes tokens at a steady rate from some 64 on: a longer step is no faster per token, only a longer wait."""


def build_engine(config: EngineConfig, scheduling: SchedulerConfig, progress: Progress) -> Engine:
    """Load the model and make it ready to serve. Raises ``SettingError``; takes seconds to minutes."""
    return assemble(load_model(config, progress), config, scheduling, progress)


def assemble(
    loaded: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    progress: Progress,
    max_steps_in_flight: int | None = None,
) -> Engine:
    """An engine for a model that is loaded already; it must have a tokenizer. ``max_steps_in_flight`` None: whatever
    suits device and settings."""
    if loaded.tokenizer is None:
        raise SettingError("model", config.model, "it has no tokenizer")
    scheduling = _for_device(scheduling, str(loaded.device))
    if config.native_kernels == AutoOrOff.AUTO:
        _use_kernels(loaded.device, config, progress)
    cache = build_cache(loaded, config, progress)
    sampler = Sampler(loaded.vocab_size, loaded.device)
    ways = ways_for(loaded.device, config)
    forward = choose_forward(loaded, cache, ways, scheduling.max_num_seqs, progress)
    inputs = inputs_for(loaded.device, _step_limits(cache, scheduling))
    ready = Ready(
        num_pages=cache.num_pages,
        page_size=cache.page_size,
        max_model_len=cache.max_model_len,
        max_num_seqs=scheduling.max_num_seqs,
        vocab_size=loaded.vocab_size,
        model_id=loaded.model_id,
        dtype=str(loaded.dtype).removeprefix("torch."),
        device=str(loaded.device),
    )
    return Engine(
        ready=ready,
        tokenizer=Tokenizer(loaded.tokenizer, loaded.vocab_size, cache.max_model_len),
        scheduler=_make_scheduler(ready, scheduling),
        runner=Runner(forward, sampler, loaded.device, cache.page_size, inputs),
        sampler=sampler,
        eos_token_ids=loaded.eos_token_ids,
        max_steps_in_flight=max_steps_in_flight or _max_steps_in_flight(loaded.device, config),
    )


def reschedule(engine: Engine, scheduling: SchedulerConfig) -> SchedulerConfig:
    """Let an idle engine form its batches in another way; what its pages held is forgotten. Returns the settings with
    the device's defaults. Raises ``RuntimeError`` if it has work."""
    scheduling = _for_device(scheduling, engine.ready.device)
    engine.use_scheduler(_make_scheduler(engine.ready, scheduling), scheduling.max_num_seqs)
    return scheduling


def _for_device(scheduling: SchedulerConfig, device: str) -> SchedulerConfig:
    return scheduling.with_default_tokens(CPU_STEP_TOKENS) if device.startswith("cpu") else scheduling


def _make_scheduler(ready: Ready, scheduling: SchedulerConfig) -> Scheduler:
    return Scheduler(scheduling, PagePool(ready.num_pages, ready.page_size), ready.max_model_len)


def _max_steps_in_flight(device: torch.device, config: EngineConfig) -> int:
    """A CPU has no time of its own that the host could use."""
    return 2 if device.type == "cuda" and config.overlap == AutoOrOff.AUTO else 1


def _step_limits(cache: KvCache, scheduling: SchedulerConfig) -> StepLimits:
    num_columns = -(-cache.max_model_len // cache.page_size)
    return StepLimits(scheduling.num_step_tokens, scheduling.max_num_seqs, num_columns)


def _use_kernels(device: torch.device, config: EngineConfig, progress: Progress) -> None:
    if device.type == "cpu":
        use_native_kernels(cache_folder(config), progress)
    elif device.type == "cuda":
        use_triton_kernels(device)
