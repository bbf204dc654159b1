"""The op ``headway::linear`` and the layer that it serves: a linear layer in bfloat16, its weights packed for the CPU.

    headway::linear(input, packed_weight, out_features, bias) -> output

    input          [..., in_features]       bfloat16; rows may lie apart
    packed_weight  [ceil(out_features / 32), ceil(in_features / 2), 32, 2]    bfloat16, as `pack_weight` makes it
    bias           [out_features]           bfloat16, or None
    output         [..., out_features]      bfloat16, rounded once from sums in float32

A block holds 32 output columns, the two weights of each pair of inputs side by side, which is how the instruction for
bfloat16 (VDPBF16PS: two products per lane) reads them; what is missing in the last block is 0. So one stream of memory
passes through the CPU once per call. The packed weight is an ordinary tensor: `torch.compile` traces the op as it does
any other, and may join calls that are the same.

`linear_reference` computes the same in plain torch, wherever the native kernel is not loaded.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

OP = "headway::linear"
BLOCK = 32
"""Output columns per block; linear_problem.h knows the same number."""


def pack_weight(weight: Tensor) -> Tensor:
    """``weight`` [out_features, in_features] in blocks, as the op takes it."""
    out_features, in_features = weight.shape
    whole = pad(weight, (0, -in_features % 2, 0, -out_features % BLOCK))
    return whole.view(-1, BLOCK, whole.shape[1] // 2, 2).transpose(1, 2).contiguous()


def unpack_weight(packed_weight: Tensor, out_features: int, in_features: int) -> Tensor:
    """What `pack_weight` was given."""
    rows = packed_weight.transpose(1, 2).reshape(-1, packed_weight.shape[1] * 2)
    return rows[:out_features, :in_features]


def linear_reference(input: Tensor, packed_weight: Tensor, out_features: int, bias: Tensor | None = None) -> Tensor:
    return linear(input, unpack_weight(packed_weight, out_features, input.shape[-1]), bias)


torch.library.define(OP, "(Tensor input, Tensor packed_weight, int out_features, Tensor? bias=None) -> Tensor")
torch.library.impl(OP, "CompositeExplicitAutograd")(linear_reference)


@torch.library.register_fake(OP)
def _linear_shape(input: Tensor, packed_weight: Tensor, out_features: int, bias: Tensor | None = None) -> Tensor:
    return input.new_empty((*input.shape[:-1], out_features))


def has_kernel() -> bool:
    """Whether the native kernel is loaded; without it the op works, but unpacks all weights in every call."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(OP, "CPU")


class NativeLinear(nn.Module):
    """``input`` [..., in_features] to [..., out_features] in bfloat16, like the `torch.nn.Linear` that it replaces.
    There is no plain weight, nothing to train and nothing to save."""

    packed_weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """``weight`` [out_features, in_features] is copied, ``bias`` [out_features] is kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("packed_weight", pack_weight(weight.detach()), persistent=False)
        self.register_buffer("bias", None if bias is None else bias.detach(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.headway.linear(input, self.packed_weight, self.out_features, self.bias)
        return output

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
