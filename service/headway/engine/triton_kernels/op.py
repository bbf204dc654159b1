"""The op as the dispatcher calls it: checks what the kernels take, then writes pages and attends."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from headway.engine.page_scales import EIGHT_BITS, MIN_CAPABILITY, Scales
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.triton_kernels.attend import DOT_TYPES, attention_launches
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.launch import Chip
from headway.engine.triton_kernels.tiles import MAX_WIDTH
from headway.engine.triton_kernels.write import rotate_launch, write_launch


def paged_attention_triton(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """See `headway.engine.attention`; on the current device, with at least one new token per sequence. What the kernels
    do not take (float64, heads wider than 256, a scale that is not positive, pages that are not contiguous, eight bits
    on an old chip) goes to the reference."""
    scales = None if key_scales is None or value_scales is None else Scales(key_scales, value_scales)
    arguments = (key_pages, value_pages, page_table, query_start, context_lens, scale, sliding_window, softcap)
    batch = Batch(_rows(query), *arguments, sinks=sinks, scales=scales)
    if not can_attend(batch):
        written = (key_pages, value_pages, slot_mapping, page_table, query_start, context_lens)
        extras = (sinks, key_scales, value_scales, cos, sin)
        return paged_attention_reference(query, key, value, *written, scale, sliding_window, softcap, *extras)
    output = query.new_empty((*query.shape[:2], value.shape[2]))
    if len(query):
        run(batch, _rows(key), _rows(value), slot_mapping, output, chip_of(query.device), cos, sin)
    return output


def run(
    batch: Batch,
    key: Tensor,
    value: Tensor,
    slot_mapping: Tensor,
    output: Tensor,
    chip: Chip,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> None:
    """Writes the pages and ``output`` [T, Hq, V], contiguous."""
    pages = (batch.key_pages, batch.value_pages, slot_mapping.contiguous(), batch.scales)
    if cos is None or sin is None:
        write_launch(key, value, *pages).run()
    else:
        turned = torch.empty_like(batch.query, memory_format=torch.contiguous_format)
        rotate_launch(turned, batch.query, key, value, cos.contiguous(), sin.contiguous(), *pages).run()
        batch = replace(batch, query=turned)
    for launch in attention_launches(batch, output, chip):
        launch.run()


def can_attend(batch: Batch) -> bool:
    return (
        batch.query.dtype in DOT_TYPES
        and _can_read(batch)
        and max(batch.query.shape[2], batch.value_dim) <= MAX_WIDTH
        and batch.scale > 0
        and batch.softcap >= 0
        and batch.key_pages.is_contiguous()
        and batch.value_pages.is_contiguous()
    )


def _can_read(batch: Batch) -> bool:
    stored = {batch.key_pages.dtype, batch.value_pages.dtype}
    if batch.scales is None:
        return stored == {batch.query.dtype}
    major, minor = MIN_CAPABILITY
    return stored == {EIGHT_BITS} and chip_of(batch.query.device).capability >= 10 * major + minor


@cache
def chip_of(device: torch.device) -> Chip:
    major, minor = torch.cuda.get_device_capability(device)
    return Chip(10 * major + minor, torch.cuda.get_device_properties(device).multi_processor_count)


def _rows(tensor: Tensor) -> Tensor:
    """Columns side by side; tokens and heads may lie anywhere."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
