"""Puts an engine together from its two groups of settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headway.core.errors import SettingError
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.allocation import allocate_pages
from headway.engine.cache_folder import cache_folder
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.deferred_rotary import defer_rotary
from headway.engine.engine import Engine
from headway.engine.forward import Forward
from headway.engine.forward_choice import choose_forward, ways_for
from headway.engine.input_buffers import StepLimits, inputs_for
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, Progress, load_model
from headway.engine.messages import Ready
from headway.engine.native.kernels import use_native_kernels
from headway.engine.parallel.forward import FollowingForward, LeadingForward
from headway.engine.parallel.group import join
from headway.engine.parallel.other_ranks import OtherRanks
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.tokenizer import Tokenizer
from headway.engine.triton_kernels.kernels import use_triton_kernels

CPU_STEP_TOKENS = 512
"""A CPU computes tokens at a steady rate from some 64 on: a longer step is no faster per token, only a longer wait."""


@dataclass(frozen=True, slots=True)
class ModelInPlace:
    """A model with the pages that it writes; every rank has its own, built in the same steps."""

    forward: Forward
    cache: KvCache


def build_engine(
    config: EngineConfig, scheduling: SchedulerConfig, progress: Progress, ranks: OtherRanks | None = None
) -> Engine:
    """Load the model and make it ready to serve. ``ranks`` are started already, and needed if the model is divided.

    Raises ``SettingError``; takes seconds to minutes.
    """
    if config.tensor_parallel_size > 1:
        if ranks is None:
            fix = "only the engine child of a worker divides a model; use 1"
            raise SettingError("tensor_parallel_size", config.tensor_parallel_size, fix)
        progress(f"waiting for {config.tensor_parallel_size - 1} more processes")
        listener = ranks.take_listener()
        join(config, 0, listener.getsockname()[1], listener.detach())
    return assemble(load_model(config, progress), config, scheduling, progress, ranks=ranks)


def build_follower(config: EngineConfig, scheduling: SchedulerConfig, rank: int, port: int) -> FollowingForward:
    """What a rank other than the first needs of an engine."""
    join(config, rank, port)
    loaded = load_model(config, _say_nothing)
    scheduling = _for_device(scheduling, str(loaded.device))
    return FollowingForward(put_in_place(loaded, config, scheduling, _say_nothing).forward, loaded.device)


def assemble(
    loaded: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    progress: Progress,
    *,
    ranks: OtherRanks | None = None,
    max_steps_in_flight: int | None = None,
) -> Engine:
    """An engine for a model that is loaded already; it must have a tokenizer. ``ranks``: the others, which build theirs
    with `build_follower` meanwhile, if the model is divided. ``max_steps_in_flight`` None: whatever suits device and
    settings."""
    if loaded.tokenizer is None:
        raise SettingError("model", config.model, "it has no tokenizer")
    scheduling = _for_device(scheduling, str(loaded.device))
    in_place = put_in_place(loaded, config, scheduling, progress)
    cache, forward = in_place.cache, in_place.forward
    if ranks is not None and ranks.pids:
        forward = LeadingForward(forward, ranks.announce)
    sampler = Sampler(loaded.vocab_size, loaded.device)
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


def put_in_place(
    loaded: LoadedModel, config: EngineConfig, scheduling: SchedulerConfig, progress: Progress
) -> ModelInPlace:
    """Whatever runs the model here depends on the arguments only, or is agreed on, so that all ranks do the same."""
    if config.native_kernels == AutoOrOff.AUTO:
        _use_kernels(loaded, config, progress)
    cache = allocate_pages(loaded, config, scheduling, progress)
    ways = ways_for(loaded.device, config)
    return ModelInPlace(choose_forward(loaded, cache, ways, scheduling.max_num_seqs, progress), cache)


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


def _say_nothing(stage: str) -> None:
    """Rank 0 is as far, and says it."""


def _use_kernels(loaded: LoadedModel, config: EngineConfig, progress: Progress) -> None:
    if loaded.device.type == "cpu":
        use_native_kernels(cache_folder(config), progress)
    elif loaded.device.type == "cuda" and use_triton_kernels(loaded.device):
        progress(f"{defer_rotary(loaded.model)} layers turn their keys on the way into the pages")
