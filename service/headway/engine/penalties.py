"""Which tokens each sequence holds already, for the repetition, presence and frequency penalties.

The counts live where the logits live, one row (slot) per penalised sequence, and are brought up to date there:

    first seen here   the host says what prompt and restored output hold
    each step after   the device counts the token that it has just chosen, which the host need not know yet

So a step costs the same after 10 tokens as after 10,000. Sequences without penalties take no slot. A slot is 5 bytes
per vocabulary entry.

A step that failed and is run again finds a slot that has counted too much already: it is counted anew. Then all tokens
are known to the host, since a step is only run again when those before it have ended.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headway.core.job import SamplingParams
from headway.engine.sampled_rows import SampledRow
from headway.engine.transfer import to_device


def has_penalties(sampling: SamplingParams) -> bool:
    neutral = sampling.repetition_penalty == 1.0 and sampling.presence_penalty == 0.0
    return not (neutral and sampling.frequency_penalty == 0.0)


@dataclass(slots=True)
class _Slot:
    row: int
    num_counted_tokens: int = 0
    """The token that is chosen next included, once the step that chooses it is launched."""


@dataclass(slots=True)
class _History:
    """Tokens that slots have not counted, and slots that begin anew before they do."""

    cleared: list[int] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)
    """Slot and token, of prompt and output."""
    output: list[tuple[int, int]] = field(default_factory=list)
    """Slot and token, of the output only."""


class Penalties:
    """The counts of the sequences that are penalised, and the penalties themselves."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._device = device
        self._slots: dict[int, _Slot] = {}
        self._free_rows: list[int] = []
        self._num_output = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)
        """[slots, vocab]: how often the output holds each token."""
        self._seen = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)
        """[slots, vocab]: whether prompt or output holds it."""

    def apply(self, logits: Tensor, picked: Tensor, rows: Rows[SampledRow]) -> Tensor:
        """Penalise ``logits[picked[i]]`` for what the sequence of ``rows[i]`` holds, in place. Returns the sequences'
        slots [rows], for `count`.

        Repetition divides a positive logit and multiplies a negative one, for every token of prompt and output (CTRL,
        Keskar et al. 2019); frequency and presence are OpenAI's: per occurrence, and once, in the output only.
        """
        history = _History()
        slots = self._indices([self._catch_up(row, history).row for row in rows])
        self._add(history)
        repetition, frequency, presence = _columns(rows, logits)
        scores = logits[picked]
        repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
        scores = torch.where(self._seen[slots], repeated, scores)
        num_output = self._num_output[slots]
        scores -= frequency * num_output + presence * (num_output > 0)
        logits[picked] = scores
        return slots

    def count(self, slots: Tensor, tokens: Tensor) -> None:
        """The sequences with these ``slots`` [rows] now hold ``tokens`` [rows] as well, as the device has chosen."""
        self._seen.index_put_((slots, tokens), self._seen.new_ones(()))
        self._num_output.index_put_((slots, tokens), self._num_output.new_ones(()), accumulate=True)

    def forget(self, number: int) -> None:
        """Free the slot of the sequence of this number, if it has one."""
        slot = self._slots.pop(number, None)
        if slot is not None:
            self._free_rows.append(slot.row)

    def _catch_up(self, row: SampledRow, history: _History) -> _Slot:
        """The sequence's slot; what it has not counted of the tokens before the row's is added to ``history``."""
        sequence = row.sequence
        slot = self._slots.get(sequence.number) or self._take(sequence.number)
        if not slot.num_counted_tokens or slot.num_counted_tokens > row.num_tokens:
            slot.num_counted_tokens = 0
            history.cleared.append(slot.row)
        new = sequence.token_ids[slot.num_counted_tokens : row.num_tokens]
        assert slot.num_counted_tokens + len(new) == row.num_tokens, "a token is missing from the counts"
        num_prompt = max(0, sequence.num_prompt_tokens - slot.num_counted_tokens)
        history.seen += [(slot.row, token) for token in new]
        history.output += [(slot.row, token) for token in new[num_prompt:]]
        slot.num_counted_tokens = row.num_tokens + 1
        return slot

    def _add(self, history: _History) -> None:
        if history.cleared:
            cleared = self._indices(history.cleared)
            self._seen.index_fill_(0, cleared, False)
            self._num_output.index_fill_(0, cleared, 0)
        if history.seen:
            slots, tokens = self._indices(history.seen).T
            self._seen.index_put_((slots, tokens), self._seen.new_ones(()))
        if history.output:
            slots, tokens = self._indices(history.output).T
            self._num_output.index_put_((slots, tokens), self._num_output.new_ones(()), accumulate=True)

    def _indices(self, numbers: list[int] | list[tuple[int, int]]) -> Tensor:
        return to_device(np.array(numbers, dtype=np.int64), self._device)

    def _take(self, number: int) -> _Slot:
        if not self._free_rows:
            self._grow()
        slot = self._slots[number] = _Slot(self._free_rows.pop())
        return slot

    def _grow(self) -> None:
        """Double the number of slots."""
        num_rows = self._seen.shape[0]
        num_new = max(8, num_rows)
        vocab_size = self._seen.shape[1]
        seen = torch.cat([self._seen, self._seen.new_zeros((num_new, vocab_size))])
        num_output = torch.cat([self._num_output, self._num_output.new_zeros((num_new, vocab_size))])
        self._seen, self._num_output = seen, num_output  # both or, for want of memory, neither
        self._free_rows.extend(range(num_rows, num_rows + num_new))


def _columns(rows: Rows[SampledRow], logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Repetition, frequency and presence penalties, each as a column [rows, 1]."""
    params = [row.sequence.sampling for row in rows]
    values = np.array([(p.repetition_penalty, p.frequency_penalty, p.presence_penalty) for p in params])
    repetition, frequency, presence = to_device(values, logits.device).to(logits.dtype).T.unsqueeze(-1)
    return repetition, frequency, presence
