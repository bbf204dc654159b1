"""Puts an engine together from its two groups of settings."""

from __future__ import annotations

from headway.core.errors import SettingError
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.allocation import allocate_pages
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.deferred_rotary import defer_rotary
from headway.engine.device_memory import bytes_taken_by_others
from headway.engine.engine import Engine
from headway.engine.forward import EagerForward
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
    others = bytes_taken_by_others(config)
    return assemble(load_model(config, progress), config, scheduling, progress, others=others)


def assemble(
    loaded: LoadedModel, config: EngineConfig, scheduling: SchedulerConfig, progress: Progress, others: int = 0
) -> Engine:
    """An engine for a model that is loaded already; it must have a tokenizer. ``others``: bytes of the GPU that were
    taken before, which do not count as this engine's."""
    if loaded.tokenizer is None:
        raise SettingError("model", config.model, "it has no tokenizer")
    scheduling = _for_device(scheduling, str(loaded.device))
    if config.native_kernels == AutoOrOff.AUTO:
        _use_kernels(loaded, config, progress)
    cache = allocate_pages(loaded, config, scheduling, others, progress)
    sampler = Sampler(loaded.vocab_size, loaded.device)
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
        runner=Runner(EagerForward(loaded, cache), sampler, loaded.device, cache.page_size),
        sampler=sampler,
        eos_token_ids=loaded.eos_token_ids,
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


def _use_kernels(loaded: LoadedModel, config: EngineConfig, progress: Progress) -> None:
    if loaded.device.type == "cpu":
        use_native_kernels(cache_folder(config), progress)
    elif loaded.device.type == "cuda" and use_triton_kernels(loaded.device):
        progress(f"{defer_rotary(loaded.model)} layers turn their keys on the way into the pages")
