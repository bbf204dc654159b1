"""Inputs that stay where they are: what a captured step reads in every replay.

    row      0 … n-1  the step's sequences     n … the rest of the batch size, which is padding
             token, position, slot, pages      token 0 at position 0 of a sequence of one token in the scratch page

All shapes share one set of tensors, of which a smaller shape reads the beginning. Padding stays padding until a larger
step overwrites it, so steps of one size, which is most of them, cost five copies within the device and nothing else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.captured.ladder import DecodeShape
from headway.engine.forward import DeviceInputs


class StaticInputs:
    """For decodes up to ``largest``."""

    def __init__(self, largest: DecodeShape, scratch_page: int, page_size: int, device: torch.device) -> None:
        num_rows = largest.batch_size
        rows = torch.arange(num_rows + 1, device=device)
        self._scratch_page = scratch_page
        self._scratch_slot = scratch_page * page_size
        self._inputs = DeviceInputs(
            token_ids=torch.zeros_like(rows[:-1]),
            positions=torch.zeros_like(rows[:-1]),
            slot_mapping=torch.full_like(rows[:-1], self._scratch_slot),
            page_table=torch.full((num_rows, largest.num_columns), scratch_page, dtype=torch.int32, device=device),
            query_start=rows.int(),
            context_lens=torch.ones_like(rows[:-1], dtype=torch.int32),
            sampled_rows=rows[:-1],
        )
        self._num_filled = 0

    def view(self, shape: DecodeShape) -> DeviceInputs:
        """What a step of this shape reads."""
        return DeviceInputs(
            token_ids=self._inputs.token_ids[: shape.batch_size],
            positions=self._inputs.positions[: shape.batch_size],
            slot_mapping=self._inputs.slot_mapping[: shape.batch_size],
            page_table=self._inputs.page_table[: shape.batch_size, : shape.num_columns],
            query_start=self._inputs.query_start[: shape.batch_size + 1],
            context_lens=self._inputs.context_lens[: shape.batch_size],
            sampled_rows=self._inputs.sampled_rows[: shape.batch_size],
        )

    def fill(self, inputs: DeviceInputs) -> None:
        """With one token of each sequence; all other rows are padding afterwards."""
        num_rows, num_columns = inputs.page_table.shape
        self._inputs.token_ids[:num_rows].copy_(inputs.token_ids)
        self._inputs.positions[:num_rows].copy_(inputs.positions)
        self._inputs.slot_mapping[:num_rows].copy_(inputs.slot_mapping)
        self._inputs.page_table[:num_rows, :num_columns].copy_(inputs.page_table)
        self._inputs.context_lens[:num_rows].copy_(inputs.context_lens)
        self._pad(slice(num_rows, self._num_filled))
        self._num_filled = num_rows

    def _pad(self, rows: slice) -> None:
        if rows.start >= rows.stop:
            return
        _fill(self._inputs.token_ids[rows], 0)
        _fill(self._inputs.positions[rows], 0)
        _fill(self._inputs.slot_mapping[rows], self._scratch_slot)
        _fill(self._inputs.page_table[rows, :1], self._scratch_page)
        _fill(self._inputs.context_lens[rows], 1)


def _fill(tensor: Tensor, number: int) -> None:
    tensor.fill_(number)
