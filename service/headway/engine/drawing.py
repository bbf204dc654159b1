"""Drawing one token per row from a filtered softmax, so that a row's result depends on that row alone.

Floating-point sums depend on their order, and the order inside a library's kernel may depend on how many rows it is
given. So the sums here are of integers: each probability becomes a 40-bit fixed-point weight relative to the row's
most likely token, and everything behind that (top-k, top-p, the cumulative distribution, its inverse) is exact, in
whatever order it is computed. A token less likely than the best by a factor of 2^40 has weight 0. Sums fit 63 bits
up to a vocabulary of 2^22.

Each filter is a least weight that a token must have: tokens that tie with the last one kept are all kept, so the
result does not depend on how a sort breaks ties either.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.job import SamplingParams

_ONE = 2**40
"""The weight of a row's most likely token."""
_MIN_TEMPERATURE = 1e-5
"""Below it softmax is greedy to the last bit, and the division would overflow."""
_NUM_CANDIDATES = 256
"""Most likely tokens among which the end of a nucleus is sought first; only rows that need more are sorted whole."""
_NUM_CPU_ROWS = 8
"""Rows taken at a time on a CPU: as many as leave the weights in its caches; a third to a half faster."""


def draw(logits: Tensor, params: Rows[SamplingParams], uniforms: NDArray[np.float64]) -> Tensor:
    """Token ids [rows] for logits [rows, vocab]: the inverse of each row's cumulative distribution at its uniform.

    The filters go in the order of transformers: temperature, top-k, top-p of what top-k left, min-p.
    """
    num_rows = len(params)
    size = _NUM_CPU_ROWS if logits.device.type == "cpu" else num_rows
    groups = [slice(start, start + size) for start in range(0, num_rows, size)]
    return torch.cat([_draw(logits[group], params[group], uniforms[group]) for group in groups])


def _draw(logits: Tensor, params: Rows[SamplingParams], uniforms: NDArray[np.float64]) -> Tensor:
    """`draw` of one group of rows.

    However it is rounded, the target stays below the total T. Let T' be T as a float64, and g the distance from T' to
    the next lower one, so that T' ≤ T + g/2. The uniform is at most 1 - 2^-53, so the product is T' - T'·2^-53 at most,
    rounded. T'·2^-53 is exactly g if T' is a power of two, and else more than g/2; either way that is T' - g at most,
    which is less than T.
    """
    weights = _weights(logits, params)
    if any(_is_filtered(p) for p in params):
        weights = torch.where(weights >= _least_weights(weights, params).unsqueeze(-1), weights, 0)
    cumulative = weights.cumsum_(-1)
    total = cumulative[:, -1]
    targets = (torch.from_numpy(uniforms).to(logits.device) * total).long()
    tokens = torch.searchsorted(cumulative, targets.unsqueeze(-1), right=True).squeeze(-1)
    return tokens.clamp_(max=logits.shape[1] - 1)  # NaN logits draw anything, but no token that does not exist


def _weights(logits: Tensor, params: Rows[SamplingParams]) -> Tensor:
    """int64 [rows, vocab]: exp((logit - largest) / temperature) in units of 2^-40."""
    scores = logits - logits.amax(-1, keepdim=True)
    if any(p.temperature != 1.0 for p in params):
        temperatures = [max(p.temperature, _MIN_TEMPERATURE) for p in params]
        scores /= torch.tensor(temperatures, dtype=scores.dtype, device=scores.device).unsqueeze(-1)
    return scores.exp_().mul_(_ONE).long()


def _is_filtered(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def _least_weights(weights: Tensor, params: Rows[SamplingParams]) -> Tensor:
    """int64 [rows]: the least weight that a token must have to be drawn; the most likely always has it."""
    device = weights.device
    least = torch.tensor([int(p.min_p * _ONE) for p in params], device=device)
    ranked = [row for row, p in enumerate(params) if p.top_k > 0 or p.top_p < 1.0]
    if not ranked:
        return least
    rows = torch.tensor(ranked, device=device)
    vocab_size = weights.shape[1]
    top_k = torch.tensor([min(params[row].top_k or vocab_size, vocab_size) for row in ranked], device=device)
    top_p = torch.tensor([params[row].top_p for row in ranked], dtype=torch.float64, device=device)
    picked = weights if len(ranked) == len(params) else weights[rows]
    least[rows] = torch.maximum(least[rows], _ranked_least_weights(picked, top_k, top_p))
    return least


def _ranked_least_weights(weights: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """`_least_weights` of top-k and top-p: first from a few candidates, then for the rows that need them from all."""
    num_candidates = min(_NUM_CANDIDATES, weights.shape[1])
    candidates = weights.topk(num_candidates).values
    least, is_settled = _search(weights, candidates, top_k, top_p)
    if bool(is_settled.all()):
        return least
    rest = (~is_settled).nonzero().squeeze(-1)
    everything = weights[rest].sort(descending=True).values
    least[rest], _ = _search(weights[rest], everything, top_k[rest], top_p[rest])
    return least


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
