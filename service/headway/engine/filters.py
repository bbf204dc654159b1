"""top-k, top-p and min-p as one least weight per row: a token is drawn if it weighs as much.

    top-k   the k-th largest weight
    top-p   the smallest weight v such that all that are larger weigh less than p of what top-k left
    min-p   p of the largest weight

With integer weights (`drawing`) each of them is exact, however it is found. A few hundred most likely tokens settle
nearly every row. For the others a CPU looks which they are and sorts those. A GPU would have to be waited for to know;
there it finds out by itself, and searches those by bisection (`headway.engine.nucleus`).
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.job import SamplingParams
from headway.engine.nucleus import settle
from headway.engine.transfer import to_device

_NUM_CANDIDATES = 256
"""Most likely tokens among which the end of a nucleus is sought first."""
_NO_TOP_K = 2**62


def is_filtered(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Filters:
    """What rows ask for, on the host."""

    min_weights: NDArray[np.int64]
    """[all rows]: min-p, as a weight."""
    ranked: list[int]
    """Rows with a top-k or a top-p."""
    top_k: NDArray[np.int64]
    """[ranked rows]"""
    top_p: NDArray[np.float64]
    """[ranked rows]"""

    @classmethod
    def of(cls, params: Rows[SamplingParams], one: int) -> Filters:
        """``one``: the weight of the most likely token."""
        ranked = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1.0]
        return cls(
            min_weights=np.array([int(p.min_p * one) for p in params], dtype=np.int64),
            ranked=ranked,
            top_k=np.array([min(params[row].top_k or _NO_TOP_K, _NO_TOP_K) for row in ranked], dtype=np.int64),
            top_p=np.array([params[row].top_p for row in ranked], dtype=np.float64),
        )


def least_weights(weights: Tensor, filters: Filters) -> Tensor:
    """int64 [rows]: the least weight that a token must have to be drawn; the most likely always has it."""
    device, vocab_size = weights.device, weights.shape[1]
    least = to_device(filters.min_weights, device)
    if not filters.ranked:
        return least
    rows = to_device(np.array(filters.ranked, dtype=np.int64), device)
    top_k = to_device(np.minimum(filters.top_k, vocab_size), device)
    top_p = to_device(filters.top_p, device)
    picked = weights if len(filters.ranked) == weights.shape[0] else weights[rows]
    if device.type == "cpu":
        ranked = _sorted_where_needed(picked, top_k, top_p)
    else:
        ranked = _settled_without_asking(picked, top_k, top_p, filters.top_k)
    least[rows] = torch.maximum(least[rows], ranked)
    return least


def _sorted_where_needed(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """`least_weights` of top-k and top-p: first from a few candidates, then for the rows that need them from all."""
    least, is_settled = _search(weights, _candidates(weights), top_k, top_p)
    if bool(is_settled.all()):
        return least
    rest = (~is_settled).nonzero().squeeze(-1)
    everything = weights[rest].sort(descending=True).values
    least[rest], _ = _search(weights[rest], everything, top_k[rest], top_p[rest])
    return least


def _settled_without_asking(weights: Tensor, top_k: Tensor, top_p: Tensor, top_k_on_host: NDArray[np.int64]) -> Tensor:
    """The same without asking the device anything: a row with a small top-k is always settled."""
    least, is_settled = _search(weights, _candidates(weights), top_k, top_p)
    if np.all(top_k_on_host <= _NUM_CANDIDATES):
        return least
    return settle(least, is_settled, weights, top_k, top_p)


def _candidates(weights: Tensor) -> Tensor:
    return weights.topk(min(_NUM_CANDIDATES, weights.shape[1])).values


def _search(weights: Tensor, candidates: Tensor, top_k: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Least weight kept per row, and whether the candidates (the row's largest weights, descending) were enough."""
    num_candidates, vocab_size = candidates.shape[1], weights.shape[1]
    last = (top_k.clamp(max=num_candidates) - 1).unsqueeze(-1)
    is_cut = top_k < vocab_size
    least = torch.where(is_cut, candidates.gather(-1, last).squeeze(-1), 0)
    total = torch.where(weights >= least.unsqueeze(-1), weights, 0).sum(-1)
    budget = (top_p * total).unsqueeze(-1)
    before = candidates.cumsum(-1) - candidates
    num_kept = (before < budget).sum(-1)
    is_settled = (num_kept < num_candidates) & (~is_cut | (top_k <= num_candidates)) | (num_candidates == vocab_size)
    nucleus = candidates.gather(-1, (num_kept - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.maximum(least, nucleus), is_settled
