"""The op ``headway::linear_int8`` and the layer that it serves: a linear layer whose weights are in int8.

    headway::linear_int8(input, packed_weight, scales, out_features, bias) -> output

    input          [..., in_features]       bfloat16 or float32; rows may lie apart
    packed_weight  [ceil(out_features / 32), ceil(in_features / 4), 32, 4]    bytes, as `pack_quantized` makes them
    scales         [out_features]           float32: the step of each output column's weights
    bias           [out_features]           of the input's type, or None
    output         [..., out_features]      of the input's type, rounded once

Both factors are multiples of a step that makes the largest of them 127. Weights have a step per output column, found
once; inputs have one per 64 of a row, found in every call. A single step per row, as is common (Dettmers et al.,
LLM.int8(), 2022, section 2.1), loses four times as much: language models have outliers in a few inputs, which make it
long for all the others (docs/engine.md has the figures). A row's steps depend on nothing but the row, a group's sum is
exact, and groups are summed in order, so a token's result does not depend on who shares its batch. A row with anything
that is no finite number gives NaN.

Weights are stored 128 too large, because the instruction for int8 (VPDPBUSD: four products per lane) takes one operand
without a sign. A block holds 32 output columns, the weights of four inputs side by side.

`linear_int8_reference` computes the same in plain torch, wherever the native kernel is not loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

OP = "headway::linear_int8"
BLOCK = 32
"""Output columns per block; linear_problem.h knows the same number."""
WORD = 4
"""Inputs that are multiplied at once."""
GROUP = 64
"""Inputs that share a step; linear_problem.h knows the same number."""
LARGEST = 127
SURPLUS = 128
"""What a stored weight is too large; quantize.h knows the same number."""
SMALLEST_STEP = torch.finfo(torch.float32).tiny
"""Its inverse is a number, too."""

ROWS_AT_ONCE = 1024
"""Of a weight: what lies between it and its bytes is several times as large."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """Numbers as multiples of a step per row."""

    numbers: Tensor
    """[..., features] int8"""
    steps: Tensor
    """[..., 1] float32; NaN for a row that holds infinity or NaN."""

    @property
    def values(self) -> Tensor:
        """What they stand for, exactly: [..., features] float64"""
        return self.numbers.double() * self.steps


def quantize(rows: Tensor) -> Quantized:
    """``rows`` [..., features] of any type to the nearest multiples; ties to even."""
    numbers = rows.float()
    largest = numbers.abs().amax(-1, keepdim=True)
    steps = (largest / LARGEST).clamp_min(SMALLEST_STEP)
    nearest = (numbers * (1 / steps)).round()
    finite = largest.isfinite()
    return Quantized(torch.where(finite, nearest, 0).to(torch.int8), torch.where(finite, steps, torch.nan))


def quantize_groups(rows: Tensor) -> Quantized:
    """``rows`` [..., features] as [..., number of groups, 64], the last one filled up with zeros."""
    return quantize(pad(rows, (0, -rows.shape[-1] % GROUP)).unflatten(-1, (-1, GROUP)))


def pack_quantized(weight: Tensor) -> Tensor:
    """``weight`` [out_features, in_features] int8 in blocks, as the op takes it."""
    out_features, in_features = weight.shape
    whole = pad(weight, (0, -in_features % WORD, 0, -out_features % BLOCK))
    blocks = whole.view(-1, BLOCK, whole.shape[1] // WORD, WORD).transpose(1, 2).contiguous()
    return blocks.view(torch.uint8).bitwise_xor_(SURPLUS)  # adds it, in bytes


def unpack_quantized(packed_weight: Tensor, out_features: int, in_features: int) -> Tensor:
    """What `pack_quantized` was given."""
    blocks = packed_weight.bitwise_xor(SURPLUS).view(torch.int8)
    rows = blocks.transpose(1, 2).reshape(-1, packed_weight.shape[1] * WORD)
    return rows[:out_features, :in_features]


def linear_int8_reference(
    input: Tensor, packed_weight: Tensor, scales: Tensor, out_features: int, bias: Tensor | None = None
) -> Tensor:
    weight = unpack_quantized(packed_weight, out_features, input.shape[-1]).double() * scales[:, None]
    rows = quantize_groups(input).values.flatten(-2)[..., : input.shape[-1]]
    return linear(rows, weight, None if bias is None else bias.double()).to(input.dtype)


torch.library.define(
    OP, "(Tensor input, Tensor packed_weight, Tensor scales, int out_features, Tensor? bias=None) -> Tensor"
)
torch.library.impl(OP, "CompositeExplicitAutograd")(linear_int8_reference)


@torch.library.register_fake(OP)
def _linear_int8_shape(
    input: Tensor, packed_weight: Tensor, scales: Tensor, out_features: int, bias: Tensor | None = None
) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


def has_int8_kernel() -> bool:
    """Whether the native kernel is loaded; without it the op works, but unpacks all weights in every call."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(OP, "CPU")


class Int8Linear(nn.Module):
    """``input`` [..., in_features] to [..., out_features] in bfloat16 or float32, in place of the `torch.nn.Linear`
    whose weight it takes. There is no plain weight, nothing to train and nothing to save."""

    packed_weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """``weight`` [out_features, in_features] is not kept, ``bias`` [out_features] is."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        parts = [quantize(part) for part in weight.detach().split(ROWS_AT_ONCE)]
        numbers = torch.cat([part.numbers for part in parts])
        scales = torch.cat([part.steps.flatten() for part in parts])
        self.register_buffer("packed_weight", pack_quantized(numbers), persistent=False)
        self.register_buffer("scales", scales, persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.headway.linear_int8(
            input, self.packed_weight, self.scales, self.out_features, self.bias
        )
        return output

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, int8"
