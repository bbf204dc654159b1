"""A linear layer whose weights lie as the CPU's matrix kernels read them.

`torch.nn.functional.linear` hands oneDNN rows that it rearranges again for every call, or reads badly if it does not.
Here they are rearranged once, into blocks of oneDNN's choice, and the rows are dropped: the layer's memory stays the
same, up to the padding of the last block. What is lost is the plain weight: there is no ``.weight``, nothing to train
and nothing to save.

The operators are those that inductor's freezing uses; they exist for x86 CPUs and have no gradient.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn

X86 = {"x86_64", "amd64"}


class PackedLinear(nn.Module):
    """``input`` [..., in_features] to [..., out_features] in one type, like the `torch.nn.Linear` that it replaces."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """``weight`` [out_features, in_features] is copied, ``bias`` [out_features] is kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # No parameters: the blocks' layout is opaque to everything but the operator that reads them.
        self._blocks = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self._bias = None if bias is None else bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self._blocks, self._bias, "none", [], "")
        return output

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self._bias is not None}"


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether `PackedLinear` works here, and is faster than the plain layer."""
    if device.type != "cpu" or platform.machine().lower() not in X86 or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32
