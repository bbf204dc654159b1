"""Small arrays to the device, and tensors back from it, while nobody waits.

A copy between a GPU and ordinary memory makes the host wait for the device; one between a GPU and pinned memory is only
put in line behind what was launched before. torch keeps the pinned memory of a copy until the device has made it. On a
CPU there is nothing to copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array as a tensor of the same type; on a CPU it shares the array's memory."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class HostCopies:
    """Tensors of one device on their way to the host, together, behind all that was launched before."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._copies = [_start_copy(tensor) for tensor in tensors]
        self._arrival = _mark_arrival() if tensors[0].device.type == "cuda" else None

    @property
    def have_come(self) -> bool:
        return self._arrival is None or self._arrival.query()

    def wait(self) -> list[Tensor]:
        if self._arrival is not None:
            self._arrival.synchronize()
        return self._copies


def _start_copy(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def _mark_arrival() -> torch.cuda.Event:
    """The host sleeps while it waits for it: the device has its next step already, so waking up late costs nothing."""
    arrival = torch.cuda.Event(blocking=True)
    arrival.record()
    return arrival
