"""Drawing one token per row from a filtered softmax, so that a row's result depends on that row alone.

Floating-point sums depend on their order, and the order inside a library's kernel may depend on how many rows it is
given. So the sums here are of integers: each probability becomes a 40-bit fixed-point weight relative to the row's
most likely token, and everything behind that (top-k, top-p, the cumulative distribution, its inverse) is exact, in
whatever order it is computed. A token less likely than the best by a factor of 2^40 has weight 0. Sums fit 63 bits
up to a vocabulary of 2^22.

Each filter is a least weight that a token must have: tokens that tie with the last one kept are all kept, so the
result does not depend on how a sort breaks ties either (`filters`).
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.job import SamplingParams
from headway.engine.filters import Filters, is_filtered, least_weights
from headway.engine.transfer import to_device

_ONE = 2**40
"""The weight of a row's most likely token."""
_MIN_TEMPERATURE = 1e-5
"""Below it softmax is greedy to the last bit, and the division would overflow."""
_NUM_CPU_ROWS = 8
"""Rows taken at a time on a CPU: as many as leave the weights in its caches; a third to a half faster."""


@dataclass(frozen=True, slots=True)
class Draws:
    """What each row wants, and the number that decides it: all on the host."""

    params: Rows[SamplingParams]
    uniforms: NDArray[np.float64]
    """[rows], in [0, 1)"""

    def __getitem__(self, group: slice) -> Draws:
        return Draws(self.params[group], self.uniforms[group])

    def __len__(self) -> int:
        return len(self.params)


def draw(logits: Tensor, draws: Draws) -> Tensor:
    """Token ids [rows] for logits [rows, vocab]: the inverse of each row's cumulative distribution at its uniform.

    The filters go in the order of transformers: temperature, top-k, top-p of what top-k left, min-p.
    """
    num_rows = len(draws)
    size = _NUM_CPU_ROWS if logits.device.type == "cpu" else num_rows
    groups = [slice(start, start + size) for start in range(0, num_rows, size)]
    return torch.cat([_draw(logits[group], draws[group]) for group in groups])


def _draw(logits: Tensor, draws: Draws) -> Tensor:
    """`draw` of one group of rows.

    However it is rounded, the target stays below the total T. Let T' be T as a float64, and g the distance from T' to
    the next lower one, so that T' ≤ T + g/2. The uniform is at most 1 - 2^-53, so the product is T' - T'·2^-53 at most,
    rounded. T'·2^-53 is exactly g if T' is a power of two, and else more than g/2; either way that is T' - g at most,
    which is less than T.
    """
    weights = _weights(logits, draws.params)
    if any(map(is_filtered, draws.params)):
        least = least_weights(weights, Filters.of(draws.params, one=_ONE))
        weights = torch.where(weights >= least.unsqueeze(-1), weights, 0)
    cumulative = weights.cumsum_(-1)
    total = cumulative[:, -1]
    targets = (to_device(draws.uniforms, logits.device) * total).long()
    tokens = torch.searchsorted(cumulative, targets.unsqueeze(-1), right=True).squeeze(-1)
    return tokens.clamp_(max=logits.shape[1] - 1)  # NaN logits draw anything, but no token that does not exist


def _weights(logits: Tensor, params: Rows[SamplingParams]) -> Tensor:
    """int64 [rows, vocab]: exp((logit - largest) / temperature) in units of 2^-40."""
    scores = logits - logits.amax(-1, keepdim=True)
    if any(p.temperature != 1.0 for p in params):
        temperatures = np.array([max(p.temperature, _MIN_TEMPERATURE) for p in params])
        scores /= to_device(temperatures, scores.device).to(scores.dtype).unsqueeze(-1)
    return scores.exp_().mul_(_ONE).long()
