"""Which tokens each sequence holds already, for the repetition, presence and frequency penalties.

The counts live where the logits live, one row (slot) per penalised sequence, and grow by the tokens that came since
the last step: a step costs the same after 10 tokens as after 10,000. Sequences without penalties take no slot. A row
is 5 bytes per vocabulary entry.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.job import SamplingParams
from headway.core.sequence import Sequence


def has_penalties(sampling: SamplingParams) -> bool:
    neutral = sampling.repetition_penalty == 1.0 and sampling.presence_penalty == 0.0
    return not (neutral and sampling.frequency_penalty == 0.0)


@dataclass(slots=True)
class _Slot:
    row: int
    num_counted_tokens: int = 0


class Penalties:
    """The counts of the sequences that are penalised, and the penalties themselves."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._slots: dict[int, _Slot] = {}
        self._free_rows: list[int] = []
        self._num_output = torch.zeros((0, vocab_size), dtype=torch.int32, device=device)
        """[slots, vocab]: how often the output holds each token."""
        self._seen = torch.zeros((0, vocab_size), dtype=torch.bool, device=device)
        """[slots, vocab]: whether prompt or output holds it."""

    def apply(self, logits: Tensor, rows: Rows[int], sequences: Rows[Sequence]) -> None:
        """Penalise ``logits[rows[i]]`` for what ``sequences[i]`` holds, in place.

        Repetition divides a positive logit and multiplies a negative one, for every token of prompt and output (CTRL,
        Keskar et al. 2019); frequency and presence are OpenAI's: per occurrence, and once, in the output only.
        """
        slots = torch.tensor(self._count(sequences), device=logits.device)
        picked = torch.tensor(rows, device=logits.device)
        repetition, frequency, presence = _columns(sequences, logits)
        scores = logits[picked]
        repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
        scores = torch.where(self._seen[slots], repeated, scores)
        num_output = self._num_output[slots]
        scores -= frequency * num_output + presence * (num_output > 0)
        logits[picked] = scores

    def forget(self, number: int) -> None:
        """Free the slot of the sequence of this number, if it has one."""
        slot = self._slots.pop(number, None)
        if slot is not None:
            self._free_rows.append(slot.row)

    def _count(self, sequences: Rows[Sequence]) -> list[int]:
        """Count the tokens that are new since the last call; returns the sequences' rows."""
        rows, seen_rows, seen, output_rows, output = [], [], [], [], []
        for sequence in sequences:
            slot = self._slots.get(sequence.number) or self._take(sequence.number)
            rows.append(slot.row)
            new = sequence.token_ids[slot.num_counted_tokens :]
            new_output = sequence.token_ids[max(slot.num_counted_tokens, sequence.num_prompt_tokens) :]
            slot.num_counted_tokens = sequence.num_tokens
            seen += new
            seen_rows += [slot.row] * len(new)
            output += new_output
            output_rows += [slot.row] * len(new_output)
        self._seen[self._index(seen_rows, seen)] = True
        ones = torch.ones(len(output), dtype=torch.int32, device=self._num_output.device)
        self._num_output.index_put_(self._index(output_rows, output), ones, accumulate=True)
        return rows

    def _index(self, rows: list[int], tokens: list[int]) -> tuple[Tensor, Tensor]:
        device = self._seen.device
        return (
            torch.tensor(rows, dtype=torch.int64, device=device),
            torch.tensor(tokens, dtype=torch.int64, device=device),
        )

    def _take(self, number: int) -> _Slot:
        if not self._free_rows:
            self._grow()
        slot = _Slot(self._free_rows.pop())
        self._seen[slot.row] = False
        self._num_output[slot.row] = 0
        self._slots[number] = slot
        return slot

    def _grow(self) -> None:
        """Double the number of slots."""
        num_rows = self._seen.shape[0]
        num_new = max(8, num_rows)
        self._seen = torch.cat([self._seen, self._seen.new_zeros((num_new, self._seen.shape[1]))])
        self._num_output = torch.cat([self._num_output, self._num_output.new_zeros((num_new, self._seen.shape[1]))])
        self._free_rows.extend(range(num_rows, num_rows + num_new))


def _columns(sequences: Rows[Sequence], logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Repetition, frequency and presence penalties, each as a column [rows, 1]."""
    values = [
        (s.sampling.repetition_penalty, s.sampling.frequency_penalty, s.sampling.presence_penalty) for s in sequences
    ]
    repetition, frequency, presence = torch.tensor(values, dtype=logits.dtype, device=logits.device).T.unsqueeze(-1)
    return repetition, frequency, presence
