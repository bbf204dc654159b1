"""Inputs that stay where they are: what captured steps read in every replay.

    row      0 … n-1  the step's sequences     n … the rest of the batch size, which is padding
             token, position, slot, pages      token 0 at position 0 of a sequence of one token in the scratch page

Steps of all batch sizes share one set of tensors, of which a smaller one reads the first rows. Steps of another width
have a set of their own: the first columns of a wider table would lie apart, and a compiled forward takes only tables
that lie end to end. Padding stays padding until a larger step overwrites it, so steps of one size, which is most of
them, cost five copies within the device and nothing else.
"""

from __future__ import annotations

import torch

from headway.engine.forward import DeviceInputs


class StaticInputs:
    """For decodes of at most ``num_rows`` sequences with page tables of at most ``num_columns``."""

    def __init__(
        self, num_rows: int, num_columns: int, scratch_page: int, page_size: int, device: torch.device
    ) -> None:
        rows = torch.arange(num_rows + 1, device=device)
        self._scratch_page = scratch_page
        self._scratch_slot = scratch_page * page_size
        self._inputs = DeviceInputs(
            token_ids=torch.zeros_like(rows[:-1]),
            positions=torch.zeros_like(rows[:-1]),
            slot_mapping=torch.full_like(rows[:-1], self._scratch_slot),
            page_table=torch.full((num_rows, num_columns), scratch_page, dtype=torch.int32, device=device),
            query_start=rows.int(),
            context_lens=torch.ones_like(rows[:-1], dtype=torch.int32),
            sampled_rows=rows[:-1],
        )
        self._num_filled = 0

    def view(self, batch_size: int) -> DeviceInputs:
        """What a step of this size reads."""
        return DeviceInputs(
            token_ids=self._inputs.token_ids[:batch_size],
            positions=self._inputs.positions[:batch_size],
            slot_mapping=self._inputs.slot_mapping[:batch_size],
            page_table=self._inputs.page_table[:batch_size],
            query_start=self._inputs.query_start[: batch_size + 1],
            context_lens=self._inputs.context_lens[:batch_size],
            sampled_rows=self._inputs.sampled_rows[:batch_size],
        )

    def fill(self, inputs: DeviceInputs) -> None:
        """With one token of each sequence; all other rows are padding afterwards."""
        num_rows, num_columns = inputs.page_table.shape
        self._inputs.token_ids[:num_rows].copy_(inputs.token_ids)
        self._inputs.positions[:num_rows].copy_(inputs.positions)
        self._inputs.slot_mapping[:num_rows].copy_(inputs.slot_mapping)
        self._inputs.page_table[:num_rows, :num_columns].copy_(inputs.page_table)
        self._inputs.context_lens[:num_rows].copy_(inputs.context_lens)
        if num_rows < self._num_filled:
            self._pad(slice(num_rows, self._num_filled))
        self._num_filled = num_rows

    def _pad(self, rows: slice) -> None:
        self._inputs.token_ids[rows].fill_(0)
        self._inputs.positions[rows].fill_(0)
        self._inputs.slot_mapping[rows].fill_(self._scratch_slot)
        self._inputs.page_table[rows, :1].fill_(self._scratch_page)
        self._inputs.context_lens[rows].fill_(1)
