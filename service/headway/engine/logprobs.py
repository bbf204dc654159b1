"""Log-probabilities for the rows that ask for them, as OpenAI gives them: of the model's own distribution."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import NamedTuple

import numpy as np
from torch import Tensor

from headway.core.records import TokenLogprobs
from headway.engine.transfer import to_device

_LEAST_LOGPROB = -9999.0
"""Stands for log 0, which JSON cannot say."""


class LogprobTensors(NamedTuple):
    """On the device, for the rows that ask, the most likely tokens for all as many as the one that wants most."""

    num_tops: dict[int, int]
    """How many of the most likely tokens each row wants, by row."""
    chosen: Tensor
    """[asking rows]: of the token that was chosen."""
    top_ids: Tensor
    """[asking rows, most]"""
    top_values: Tensor
    """[asking rows, most]"""

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.chosen, self.top_ids, self.top_values

    def read(self, copies: Rows[Tensor]) -> dict[int, TokenLogprobs]:
        """By row; ``copies`` of `tensors` on the host."""
        chosen, ids, values = (copy.tolist() for copy in copies)
        return {
            row: TokenLogprobs(chosen[i], tuple(zip(ids[i][:count], values[i][:count], strict=True)))
            for i, (row, count) in enumerate(self.num_tops.items())
        }


def logprobs(logits: Tensor, tokens: Tensor, num_tops: dict[int, int]) -> LogprobTensors:
    """Of the chosen ``tokens`` [rows], from the raw ``logits`` [rows, vocab]; at least one row asks."""
    rows = to_device(np.array(list(num_tops), dtype=np.int64), logits.device)
    table = logits[rows].log_softmax(-1).clamp_(min=_LEAST_LOGPROB)
    chosen = table.gather(-1, tokens[rows].unsqueeze(-1)).squeeze(-1)
    top = table.topk(min(max(num_tops.values()), table.shape[1]))
    return LogprobTensors(num_tops, chosen, top.indices, top.values)
