"""The op ``headway::settle``: top-k and top-p of rows that their most likely tokens did not settle, without waiting.

headway::settle(least, is_settled, weights, top_k, top_p) -> least
    least [rows] int64, is_settled [rows] bool      what `headway.engine.filters` found, and of which rows it is right
    weights [rows, vocab] int64, at most 2^40; top_k [rows] int64, at most vocab; top_p [rows] float64

The least weight is searched bit by bit: what is decided about one weight holds for all smaller ones. In plain torch
that is 82 sums over all rows, settled or not: at 256 rows of 128,256 some 59 GB to read and write, 12 ms at 4.8 TB/s,
as long as the step of an 8B model itself (computed, not measured). Triton's kernel reads a row 43 times at the most,
11 GB if no row is settled, and leaves settled ones at once (`headway.engine.triton_kernels.nucleus`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OP = "headway::settle"
NUM_BITS = 41
"""Of the largest weight, 2^40."""


def settle(least: Tensor, is_settled: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The op, with the module's shapes."""
    settled: Tensor = torch.ops.headway.settle(least, is_settled, weights, top_k, top_p)
    return settled


def settle_reference(least: Tensor, is_settled: Tensor, weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    return torch.where(is_settled, least, bisect(weights, top_k, top_p))


def bisect(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The least weight of each row that top-k and top-p leave."""
    enough = top_k.unsqueeze(-1)
    by_rank = _largest(weights, lambda least: (weights >= least).sum(-1, keepdim=True) >= enough)
    kept = torch.where(weights >= by_rank, weights, 0)
    budget = top_p.unsqueeze(-1) * kept.sum(-1, keepdim=True)
    too_low = _largest(weights, lambda least: torch.where(kept >= least, kept, 0).sum(-1, keepdim=True) >= budget)
    return torch.maximum(by_rank, too_low).squeeze(-1)


def _largest(weights: Tensor, holds: Callable[[Tensor], Tensor]) -> Tensor:
    """[rows, 1]: the largest weight for which ``holds``, given that it holds for 0 and for all below any for which it
    does."""
    found = weights.new_zeros((weights.shape[0], 1))
    for bit in reversed(range(NUM_BITS)):
        higher = found + (1 << bit)
        found = torch.where(holds(higher), higher, found)
    return found


torch.library.define(OP, "(Tensor least, Tensor is_settled, Tensor weights, Tensor top_k, Tensor top_p) -> Tensor")
torch.library.impl(OP, "CompositeExplicitAutograd")(settle_reference)
