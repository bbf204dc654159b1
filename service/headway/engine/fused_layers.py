"""What takes the place of a model's norms, gated MLPs and rotary function: the same results with fewer operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headway.engine.pointwise import ACTIVATIONS, DTYPES


class FusedNorm(nn.Module):
    """Root mean square normalisation of the last dimension."""

    weight: Tensor

    def __init__(self, weight: Tensor, epsilon: float, rounds_first: bool) -> None:
        """``weight`` [width]: the factor itself; see `headway.engine.pointwise`."""
        super().__init__()
        self.epsilon = epsilon
        self.rounds_first = rounds_first
        self.register_buffer("weight", weight.detach().float(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.headway.rms_norm(input, self.weight, self.epsilon, self.rounds_first)
        return output

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, epsilon={self.epsilon}, rounds_first={self.rounds_first}"


class GatedMlp(nn.Module):
    """``down(activation(gate(x)) * up(x))``; without ``up``, ``gate`` gives both, one half each."""

    def __init__(self, gate: nn.Module, up: nn.Module | None, down: nn.Module, activation: str) -> None:
        super().__init__()
        self.gate = gate
        self.up = up
        self.down = down
        self._activation = ACTIVATIONS.index(activation)

    def forward(self, input: Tensor) -> Tensor:
        gate, up = self.gate(input).chunk(2, dim=-1) if self.up is None else (self.gate(input), self.up(input))
        output: Tensor = self.down(torch.ops.headway.gated(gate, up, self._activation))
        return output

    def extra_repr(self) -> str:
        return f"activation={ACTIVATIONS[self._activation]}"


class FusedRotary:
    """Stands in a source file of transformers for its ``apply_rotary_pos_emb(query, key, cos, sin)``: heads
    [B, heads, T, width] and positions [B, T, width] to turned heads. It computes one sequence in inference on a CPU,
    hands back heads that come without positions (`headway.engine.deferred_rotary`), and leaves everything else, for
    whoever else uses that file in this process, to the function that it replaced."""

    def __init__(self, original: Callable[..., tuple[Tensor, Tensor]]) -> None:
        self.original = original

    def __call__(
        self, query: Tensor, key: Tensor, cos: Tensor | None, sin: Tensor | None, *rest: Any, **keywords: Any
    ) -> tuple[Tensor, Tensor]:
        if cos is None or sin is None:
            return query, key
        if rest or keywords or not self._suits(query, cos) or key.dtype != query.dtype:
            return self.original(query, key, cos, sin, *rest, **keywords)
        query, key = torch.ops.headway.rotary(query, key, cos, sin)
        return query.transpose(1, 2), key.transpose(1, 2)

    @staticmethod
    def _suits(query: Tensor, cos: Tensor) -> bool:
        return (
            query.dtype in DTYPES
            and query.dtype == cos.dtype
            and query.is_cpu
            and not torch.is_grad_enabled()
            and query.dim() == 4
            and cos.dim() == 3
            and query.shape[0] == cos.shape[0] == 1
            and query.shape[-1] == cos.shape[-1]
        )
