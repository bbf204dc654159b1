"""How a step's inputs come to the device.

    StepInputs ── arrays end to end ──▶ pinned host buffer ── one copy, nobody waits ──▶ device buffer ──▶ DeviceInputs

A copy from ordinary memory makes the driver wait for it, and seven small ones cost seven times what one costs; so all
arrays of a step lie in one buffer of memory that the device can read by itself, allocated once for the largest step
that there can be. There are two of them, taken in turns: while the device may still read one, the next step is written
to the other. A CPU needs none of this, and uses the arrays as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.engine.forward import DeviceInputs
from headway.engine.step_inputs import StepInputs

NUM_BUFFERS = 2
ALIGNMENT = 16
"""Bytes. Kernels are compiled anew for tensors that begin elsewhere, and read them more slowly."""
TYPES = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}


class Inputs(Protocol):
    """The way of a step's inputs to the device."""

    def upload(self, inputs: StepInputs) -> DeviceInputs:
        """To be read by what is launched on the current stream before the next but one upload."""


class HostInputs:
    """No copy where the device computes in the host's memory, and a plain one elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def upload(self, inputs: StepInputs) -> DeviceInputs:
        return DeviceInputs.of(inputs, self._device)


class Event(Protocol):
    """A point in the device's work, as `torch.cuda.Event`."""

    def record(self) -> None:
        """All that was launched so far."""

    def synchronize(self) -> None:
        """Wait until it is done; at once if nothing was recorded."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The largest step that there can be."""

    num_tokens: int
    num_sequences: int
    num_columns: int
    """Of a page table."""

    @property
    def num_bytes(self) -> int:
        per_token, per_sequence = np.zeros(self.num_tokens, np.int64), np.zeros(self.num_sequences, np.int32)
        largest = StepInputs(
            token_ids=per_token,
            positions=per_token,
            slot_mapping=per_token,
            page_table=np.broadcast_to(np.int32(0), (self.num_sequences, self.num_columns)),
            query_start=np.zeros(self.num_sequences + 1, np.int32),
            context_lens=per_sequence,
            sampled_rows=per_sequence.astype(np.int64),
        )
        return Layout.of(largest).num_bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where one array lies in a buffer, in bytes."""

    name: str
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def end(self) -> int:
        return self.start + prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a step's arrays lie in a buffer: end to end, each at a multiple of `ALIGNMENT`."""

    places: tuple[Place, ...]

    @classmethod
    def of(cls, inputs: StepInputs) -> Layout:
        return cls(tuple(_places(inputs)))

    @property
    def num_bytes(self) -> int:
        return self.places[-1].end

    def write(self, inputs: StepInputs, buffer: NDArray[np.uint8]) -> None:
        for place in self.places:
            room = buffer[place.start : place.end].view(place.dtype).reshape(place.shape)
            np.copyto(room, getattr(inputs, place.name))

    def read(self, buffer: Tensor) -> DeviceInputs:
        """Views of ``buffer``."""
        return DeviceInputs(
            **{
                place.name: buffer[place.start : place.end].view(TYPES[place.dtype]).view(place.shape)
                for place in self.places
            }
        )


def _places(inputs: StepInputs) -> Iterator[Place]:
    start = 0
    for field in fields(inputs):
        array = getattr(inputs, field.name)
        place = Place(field.name, start, array.shape, array.dtype)
        start = -(-place.end // ALIGNMENT) * ALIGNMENT
        yield place


class _Buffer:
    """The host's side, the device's, and when the one was last copied to the other."""

    def __init__(self, num_bytes: int, device: torch.device, event: Event) -> None:
        host = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._host = host
        self._array: NDArray[np.uint8] = host.numpy()
        self._device = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._copied = event

    def upload(self, inputs: StepInputs, layout: Layout) -> DeviceInputs:
        self._copied.synchronize()
        layout.write(inputs, self._array)
        size = layout.num_bytes
        self._device[:size].copy_(self._host[:size], non_blocking=True)
        self._copied.record()
        return layout.read(self._device)


class PinnedInputs:
    """Through pinned buffers. The copies are launched on the current stream, the one that the steps run on: so no copy
    overtakes a step that reads what the device's buffer held before."""

    def __init__(self, limits: StepLimits, device: torch.device, make_event: Callable[[], Event]) -> None:
        self._num_bytes = limits.num_bytes
        self._buffers = tuple(_Buffer(self._num_bytes, device, make_event()) for _ in range(NUM_BUFFERS))
        self._num_uploads = 0
        self._larger = HostInputs(device)

    def upload(self, inputs: StepInputs) -> DeviceInputs:
        """A step that is larger than the limits (a rehearsal's) goes without the buffers."""
        layout = Layout.of(inputs)
        if layout.num_bytes > self._num_bytes:
            return self._larger.upload(inputs)
        buffer = self._buffers[self._num_uploads % NUM_BUFFERS]
        self._num_uploads += 1
        return buffer.upload(inputs, layout)


def inputs_for(device: torch.device, limits: StepLimits) -> Inputs:
    """The way that suits the device."""
    if device.type == "cuda":
        return PinnedInputs(limits, device, torch.cuda.Event)
    return HostInputs(device)
