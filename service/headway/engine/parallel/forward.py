"""A step's forward on all ranks: rank 0 says what it computes, and all compute it.

The header, with the shapes, goes through a socket: on it a rank can wait for hours without a collective that times out,
and its end says that rank 0 is gone. The arrays follow as one broadcast from device to device, because some of them are
only known there (tokens that the step before has sampled). Nothing waits for a GPU: sizes come from the header.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import fields

import msgspec
import torch
from torch import Tensor, distributed

from headway.core.errors import EngineBroken
from headway.engine.forward import DeviceInputs, Forward

logger = logging.getLogger(__name__)

MAX_REASON_CHARACTERS = 300


class TensorForm(msgspec.Struct, frozen=True, array_like=True):
    """What a tensor is without its numbers."""

    shape: tuple[int, ...]
    is_wide: bool
    """int64, or else int32."""


class StepHeader(msgspec.Struct, frozen=True, array_like=True):
    """The forms of a step's `DeviceInputs`, in the order of its fields."""

    forms: tuple[TensorForm, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StepHeader).decode
_NAMES = tuple(field.name for field in fields(DeviceInputs))


class LeadingForward:
    """Rank 0's `Forward`: ``forward`` of the own shard, while the others run theirs on the same inputs.

    Raises `EngineBroken` for whatever happens, since the others may be anywhere in the step.
    """

    def __init__(self, forward: Forward, announce: Callable[[bytes], None]) -> None:
        self._forward = forward
        self._announce = announce
        """Sends a header to every other rank."""

    def __call__(self, inputs: DeviceInputs) -> Tensor:
        try:
            self._announce(_encode(header_of(inputs)))
            distributed.broadcast(pack(inputs), src=0)
            return self._forward(inputs)
        except Exception as exc:
            logger.warning("a step of %d tokens failed on rank 0", len(inputs.token_ids), exc_info=True)
            reason = f"{type(exc).__name__}: {exc}".splitlines()[0][:MAX_REASON_CHARACTERS]
            raise EngineBroken(f"a step failed on one of several ranks, which cannot go on together: {reason}") from exc


class FollowingForward:
    """What the other ranks do: as rank 0 does, and the logits are for nobody."""

    def __init__(self, forward: Forward, device: torch.device) -> None:
        self._forward = forward
        self._device = device

    def run(self, header: bytes) -> None:
        """One step."""
        forms = _decode(header).forms
        packed = torch.empty(sum(_length(form) for form in forms), dtype=torch.int64, device=self._device)
        distributed.broadcast(packed, src=0)
        self._forward(unpack(packed, forms))


def header_of(inputs: DeviceInputs) -> StepHeader:
    tensors = [getattr(inputs, name) for name in _NAMES]
    return StepHeader(tuple(TensorForm(tuple(tensor.shape), tensor.dtype == torch.int64) for tensor in tensors))


def pack(inputs: DeviceInputs) -> Tensor:
    """All fields end to end, int64."""
    return torch.cat([getattr(inputs, name).flatten().to(torch.int64) for name in _NAMES])


def unpack(packed: Tensor, forms: tuple[TensorForm, ...]) -> DeviceInputs:
    parts = packed.split([_length(form) for form in forms])
    shaped = [part.view(form.shape) for part, form in zip(parts, forms, strict=True)]
    tensors = [part if form.is_wide else part.to(torch.int32) for part, form in zip(shaped, forms, strict=True)]
    return DeviceInputs(**dict(zip(_NAMES, tensors, strict=True)))


def _length(form: TensorForm) -> int:
    return math.prod(form.shape)
