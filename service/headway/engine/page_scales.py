"""Pages of eight bits: numbers of float8 e4m3 and, per layer and key/value head, the number that they count in.

    page      x / scale, rounded to the nearest of e4m3 (ties to even), at most ±448
    read      page · scale, in float32

e4m3 has three bits behind the leading one and eight binary orders before it rounds to multiples of its smallest number.
So the relative error of a number, at most 1/16, does not depend on the scale, and room above the largest number seen
costs nothing as long as small numbers stay clear of the lower end; a number beyond the upper one is cut off.

Scales belong to the model, not to a sequence: pages are shared between sequences with the same beginning, and a job
that another worker resumes computes its pages anew. Both must find the same numbers, or tokens that a client has seen
would be continued from other keys and values than they came from. Hence `headway.engine.calibration` always gives the
same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

EIGHT_BITS = torch.float8_e4m3fn
LARGEST = 448.0
"""Of e4m3."""
MIN_CAPABILITY = (8, 9)
"""Of a GPU's kernels: older chips do not convert e4m3."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Of one layer: [Hkv] float32 each, on the pages' device."""

    key: Tensor
    value: Tensor


def to_eight_bits(numbers: Tensor, scale: Tensor) -> Tensor:
    """``numbers`` [..., Hkv, D] of any floating type in units of ``scale`` [Hkv]. NaN stays NaN."""
    # What a conversion makes of numbers beyond the largest is for the device to choose.
    return (numbers.float() / scale[:, None]).clamp(-LARGEST, LARGEST).to(EIGHT_BITS)


def from_eight_bits(pages: Tensor, scale: Tensor) -> Tensor:
    """What ``pages`` [..., Hkv, D] stand for, in float32."""
    return pages.float() * scale[:, None]
