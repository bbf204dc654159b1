"""Linear layers that share their input, computed as one.

    q = self.q_proj(x)      computes [q | k | v] for x, keeps the rest
    k = self.k_proj(x)      the same x: takes its columns
    v = self.v_proj(x)      the same x: takes its columns, and nothing is kept any more

One product of a wide matrix reads memory better than several of narrow ones, and three calls become one. The
model's code is unchanged: each layer is replaced by a `LinearPart` of the same name, in whatever order they are called.
A part that is called with another tensor computes the whole again for that one, which is right though not fast.

"The same" means the same tensor object: comparing values would cost more than it saves. A model that changed the tensor
in place between the calls would get stale columns, so only layers that were seen to get one unchanged tensor are
merged (`headway.engine.observed_linears`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class _Computed:
    """What one call left for the other parts."""

    input: Tensor | None = None
    """Kept, so that no other tensor can be taken for it."""
    columns: list[Tensor | None] = field(default_factory=list)
    """By part; None once taken."""

    def has(self, index: int, input: Tensor) -> bool:
        return self.input is input and self.columns[index] is not None

    def take(self, index: int) -> Tensor:
        columns = self.columns[index]
        assert columns is not None
        self.columns[index] = None
        if all(left is None for left in self.columns):
            self.input = None
        return columns


class MergedLinear(nn.Module):
    """The layer that does the work: ``linear`` gives the columns of all parts side by side."""

    def __init__(self, linear: nn.Module, sizes: Sequence[int]) -> None:
        """``sizes``: the columns of each part; they add up to what ``linear`` gives."""
        super().__init__()
        self.linear = linear
        self._sizes = list(sizes)
        self._computed = _Computed()

    def part(self, index: int, input: Tensor) -> Tensor:
        computed = self._computed
        if not computed.has(index, input):
            columns = torch.split_with_sizes(self.linear(input), self._sizes, -1)  # what Tensor.split calls in the end
            computed.input, computed.columns = input, [*columns]
        return computed.take(index)


class LinearPart(nn.Module):
    """Stands where one of the merged layers stood. Its output is a view: rows lie as far apart as the whole is wide."""

    def __init__(self, merged: MergedLinear, index: int) -> None:
        super().__init__()
        self.merged = merged
        self._index = index

    def forward(self, input: Tensor) -> Tensor:
        return self.merged.part(self._index, input)
