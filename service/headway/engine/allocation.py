"""From settings and a loaded model to its pages: of which type, with which scales, and how many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from headway.core.errors import SettingError
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.calibration import calibrate
from headway.engine.config import EngineConfig, KvCacheDType
from headway.engine.device_memory import measure_use
from headway.engine.kv_cache import KvCache, num_pages_for, page_bytes
from headway.engine.largest_step import run_largest_step
from headway.engine.load import LoadedModel
from headway.engine.page_memory import PageMemory, device_memory, host_memory
from headway.engine.page_scales import EIGHT_BITS, MIN_CAPABILITY, Scales
from headway.engine.parallel.group import smallest_of_ranks

Progress = Callable[[str], None]


def allocate_pages(
    loaded: LoadedModel, config: EngineConfig, scheduling: SchedulerConfig, progress: Progress
) -> KvCache:
    """As many on every rank of a divided model. Raises ``SettingError``."""
    scales = page_scales(loaded, config, progress)
    dtype = loaded.dtype if scales is None else EIGHT_BITS
    memory = _page_memory(loaded, config, scheduling, scales, progress)
    num_pages = smallest_of_ranks(num_pages_for(loaded, config, memory, progress, dtype))
    try:
        cache = KvCache(loaded, num_pages, config.page_size, scales)
    except torch.OutOfMemoryError as exc:
        raise SettingError(
            memory.setting, memory.value, f"{num_pages} pages do not fit beside the model ({exc})"
        ) from exc
    bytes_each = page_bytes(loaded, config.page_size, dtype)
    progress(f"{num_pages} pages of {config.page_size} tokens, {bytes_each} bytes each")
    return cache


def page_scales(loaded: LoadedModel, config: EngineConfig, progress: Progress) -> list[Scales] | None:
    """By layer; None: pages are of the model's type."""
    if config.kv_cache_dtype is not KvCacheDType.FP8:
        return None
    obstacle = _obstacle_to_eight_bits(loaded)
    if obstacle is not None:
        raise SettingError("kv_cache_dtype", config.kv_cache_dtype, f"{obstacle}; set it to auto")
    progress("measuring keys and values for pages of eight bits")
    return calibrate(loaded, config.page_size)


def _obstacle_to_eight_bits(loaded: LoadedModel) -> str | None:
    if loaded.dtype == torch.float64:
        return "keys and values in float64 are there to be exact"
    if _is_gpu(loaded):
        capability = torch.cuda.get_device_capability(loaded.device)
        if capability < MIN_CAPABILITY:
            return "the GPU's compute capability is {}.{}, and {}.{} is needed".format(*capability, *MIN_CAPABILITY)
    return None


def _page_memory(
    loaded: LoadedModel,
    config: EngineConfig,
    scheduling: SchedulerConfig,
    scales: Sequence[Scales] | None,
    progress: Progress,
) -> PageMemory:
    if config.kv_memory_bytes is not None:
        return PageMemory(config.kv_memory_bytes, "kv_memory", config.kv_memory)
    if not _is_gpu(loaded):
        return host_memory(config)
    progress("measuring the largest step")
    run = partial(run_largest_step, loaded, scheduling, config.page_size, scales)
    try:
        use = measure_use(loaded.device, loaded.bytes_taken_before, run)
    except torch.OutOfMemoryError as exc:
        fix = f"the largest step does not fit beside the model; lower it, or max_num_seqs ({exc})"
        raise SettingError("max_num_batched_tokens", scheduling.num_step_tokens, fix) from exc
    return device_memory(use, config.memory_fraction)


def _is_gpu(loaded: LoadedModel) -> bool:
    return loaded.device.type == "cuda"
