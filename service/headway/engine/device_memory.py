"""Measures what an engine takes of a GPU. Nothing is decided here: this is the part that only a GPU can run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headway.engine.config import Device, EngineConfig
from headway.engine.page_memory import DeviceUse


def bytes_taken_by_others(config: EngineConfig) -> int:
    """Of the GPU that the model will be loaded on, before it is; 0 if that will be none."""
    if config.device == Device.CPU or not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def measure_use(device: torch.device, others: int, run_largest_step: Callable[[], object]) -> DeviceUse:
    """``device`` holds the model, and ``others`` was taken before; what the step leaves behind for later steps is given
    back, so that pages can have it."""
    torch.cuda.empty_cache()
    weights = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run_largest_step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    outside = total - free - others - torch.cuda.memory_reserved(device)
    return DeviceUse(total, others, weights, peak - weights, max(0, outside))
