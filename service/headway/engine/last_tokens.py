"""The tokens that the newest step samples, fed into the next one before the host knows them.

step k     rows  A  B  C   ── tokens [3] on the device ──┐
step k+1   token_ids  … A's … C's …   ◀── tokens[0, 2] ──┘   (B was preempted)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.core.batch import StepPlan
from headway.engine.transfer import to_device


class LastTokens:
    def __init__(self) -> None:
        self._tokens: Tensor | None = None
        self._places: dict[int, int] = {}

    def keep(self, tokens: Tensor, numbers: list[int]) -> None:
        """``tokens`` [rows] on the device, for the sequences of these ``numbers``."""
        self._tokens = tokens
        self._places = {number: place for place, number in enumerate(numbers)}

    @torch.inference_mode()
    def feed(self, token_ids: Tensor, plan: StepPlan) -> None:
        """Put them into the plan's ``token_ids`` [total tokens], on the device, where its sequences' are pending."""
        pending = [(row, self._places[number]) for row, number in _pending_rows(plan)]
        if not pending:
            return
        assert self._tokens is not None
        rows, places = to_device(np.array(pending, dtype=np.int64), token_ids.device).T
        # A row that said nothing has token -1, which is none; it is wasted, whatever it goes on from.
        token_ids.index_put_((rows,), self._tokens[places].clamp(min=0))


def _pending_rows(plan: StepPlan) -> list[tuple[int, int]]:
    """Rows of the plan's tokens that the host does not know, and whose they are."""
    rows: list[tuple[int, int]] = []
    end = 0
    for chunk in plan.chunks:
        end += chunk.num_tokens
        if chunk.end > chunk.sequence.num_tokens:
            rows.append((end - 1, chunk.sequence.number))
    return rows
