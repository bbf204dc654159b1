"""Measures what an engine takes of a GPU. Nothing is decided here: this is the part that only a GPU can run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from headway.engine.page_memory import DeviceUse


def bytes_taken_by_others(device: torch.device) -> int:
    """Of a GPU, by whatever is not torch in this process; 0 for a CPU, whose memory is not measured."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device)


def measure_use(device: torch.device, others: int, run_largest_step: Callable[[], object]) -> DeviceUse:
    """``device`` holds the model, and ``others`` was taken before it was loaded. What torch keeps after the step is
    given back, so that pages can have it."""
    torch.cuda.empty_cache()
    weights = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run_largest_step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    outside = max(0, bytes_taken_by_others(device) - others)
    _, total = torch.cuda.mem_get_info(device)
    return DeviceUse(total, others, weights, peak - weights, outside)
