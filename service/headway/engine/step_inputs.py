"""A step's plan as the arrays that the model and the paged attention op take.

Sequences lie end to end in one row; everything per token is computed by numpy from what is per sequence, so that a
long prefill costs no Python per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.batch import ScheduledChunk, StepPlan

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """T tokens of B sequences; the longest page table has M entries."""

    token_ids: Int64
    """[T]; 0 where a token is pending"""
    positions: Int64
    """[T], within its sequence"""
    slot_mapping: Int64
    """[T]"""
    page_table: Int32
    """[B, M], padded with 0"""
    query_start: Int32
    """[B + 1]"""
    context_lens: Int32
    """[B]"""
    sampled_rows: Int64
    """[number of sampled chunks], rows of T, in the plan's order"""


def build_step_inputs(plan: StepPlan, page_size: int) -> StepInputs:
    """The plan must have at least one chunk, and page tables that cover every chunk."""
    chunks = plan.chunks
    starts = np.array([chunk.start for chunk in chunks], dtype=np.int64)
    lengths = np.array([chunk.num_tokens for chunk in chunks], dtype=np.int64)
    ends = np.cumsum(lengths)
    page_table = _page_table(chunks, page_size)
    rows = np.repeat(np.arange(len(chunks)), lengths)
    positions = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    pages = page_table[rows, positions // page_size].astype(np.int64)
    is_sampled = np.array([chunk.is_sampled for chunk in chunks])
    return StepInputs(
        token_ids=_token_ids(chunks),
        positions=positions,
        slot_mapping=pages * page_size + positions % page_size,
        page_table=page_table,
        query_start=np.concatenate(([0], ends)).astype(np.int32),
        context_lens=(starts + lengths).astype(np.int32),
        sampled_rows=ends[is_sampled] - 1,
    )


def _token_ids(chunks: tuple[ScheduledChunk, ...]) -> Int64:
    token_ids: list[int] = []
    for chunk in chunks:
        known = chunk.sequence.token_ids[chunk.start : chunk.end]
        token_ids += known or [0]
    return np.array(token_ids, dtype=np.int64)


def _page_table(chunks: tuple[ScheduledChunk, ...], page_size: int) -> Int32:
    num_pages = [-(-chunk.end // page_size) for chunk in chunks]
    table = np.zeros((len(chunks), max(num_pages)), dtype=np.int32)
    for row, chunk, count in zip(table, chunks, num_pages, strict=True):
        row[:count] = chunk.sequence.page_table[:count]
    return table
