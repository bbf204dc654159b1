"""A kernel ready to go, as plain data: the op runs it, a test compiles it for a GPU that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Chip:
    """What the launches depend on."""

    capability: int
    """× 10: 90 for 9.0."""
    num_multiprocessors: int

    @property
    def can_chain_products(self) -> bool:
        """Whether two matrix products may add to one sum. On 10.x Triton 3.7 then computes wrong numbers
        (https://github.com/triton-lang/triton/issues/10821)."""
        return not 100 <= self.capability < 120


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, ready to go."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 1

    def run(self) -> None:
        self.kernel[self.grid](**self.arguments, **self.constants, num_warps=self.num_warps, num_stages=self.num_stages)


def strides(name: str, tensor: Tensor) -> dict[str, int]:
    """Of [tokens, heads, width], where only columns must lie side by side."""
    return {f"{name}_token_stride": tensor.stride(0), f"{name}_head_stride": tensor.stride(1)}
