"""Where this process computes."""

from __future__ import annotations

import torch

from headway.core.errors import SettingError
from headway.engine.config import Device, EngineConfig


def choose_device(config: EngineConfig) -> torch.device:
    """The CPU, or torch's current GPU. Raises ``SettingError`` if there are fewer GPUs than the settings ask for."""
    num_gpus = 0 if config.device == Device.CPU else torch.cuda.device_count()
    if config.device == Device.CUDA and not num_gpus:
        raise SettingError("device", config.device, "torch sees no CUDA GPU here; use cpu or auto")
    if not num_gpus:
        return torch.device("cpu")
    if num_gpus < config.tensor_parallel_size:
        fix = f"torch sees {num_gpus} CUDA GPU{'s' * (num_gpus > 1)} here; use {num_gpus} or less"
        raise SettingError("tensor_parallel_size", config.tensor_parallel_size, fix)
    return torch.device("cuda", torch.cuda.current_device())
