"""From a batch to launches of the attention kernels: constants, arguments and grids."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.device.decode import combine_splits, decode_attention
from headway.engine.triton_kernels.device.mixed import mixed_attention
from headway.engine.triton_kernels.launch import Chip, Launch, strides
from headway.engine.triton_kernels.splits import MAX_KEYS, MIN_KEYS, num_splits
from headway.engine.triton_kernels.tiles import Tile, Width, Work, next_power_of_two, tile_for

LOG2_E = math.log2(math.e)
BLOCK_SPLITS = 16
"""Combined at a time."""
MAX_DECODE_ROWS = 32
"""Query heads of one program; larger groups take several."""
PROGRAMS_PER_MULTIPROCESSOR = 2
"""Of the decode kernel, at least: shared memory holds so many, and two keep as many reads in flight as memory takes."""
DOT_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
"""What matrices are multiplied in. Sums are in float32."""


def attention_launches(batch: Batch, output: Tensor, chip: Chip) -> list[Launch]:
    """``output`` [T, Hq, V], contiguous. As many tokens as sequences: one each, since none has less."""
    if len(batch.query) == batch.num_sequences:
        return decode_launches(batch, output, chip)
    if batch.max_keys <= MAX_KEYS:
        return [mixed_launch(batch, output, chip)]
    # A decode of a long context would still run when the chunks are done: it is split, in a launch of its own.
    return [mixed_launch(batch, output, chip, skip_decodes=True), *decode_launches(batch, output, chip)]


def mixed_launch(batch: Batch, output: Tensor, chip: Chip, skip_decodes: bool = False) -> Launch:
    tile = _tile(batch, Work.MIXED, chip)
    num_tiles = len(batch.query) * batch.group_size // tile.num_rows + batch.num_sequences
    return Launch(
        kernel=mixed_attention,
        grid=(num_tiles, batch.num_kv_heads),
        arguments={"output": output, **_arguments(batch), "num_sequences": batch.num_sequences},
        constants={
            **_constants(batch, chip),
            "BLOCK_ROWS": tile.num_rows,
            "BLOCK_KEYS": tile.num_keys,
            "SKIP_DECODES": skip_decodes,
        },
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


def decode_launches(batch: Batch, output: Tensor, chip: Chip) -> list[Launch]:
    """One launch, or two where contexts are split."""
    tile = _tile(batch, Work.DECODE, chip)
    num_rows = min(max(tile.num_rows, next_power_of_two(batch.group_size)), MAX_DECODE_ROWS)
    num_blocks = batch.num_kv_heads * -(-batch.group_size // num_rows)
    splits = num_splits(
        batch.num_sequences * num_blocks, batch.max_keys, chip.num_multiprocessors * PROGRAMS_PER_MULTIPROCESSOR
    )
    if splits == 1:
        outputs, log_sums = output, None
    else:
        shape = (batch.num_sequences, batch.query.shape[1], splits)
        outputs = output.new_empty((*shape, batch.value_dim), dtype=torch.float32)
        log_sums = output.new_empty(shape, dtype=torch.float32)
    scratch = {"split_outputs": outputs, "split_log_sums": log_sums}
    cut = {"BLOCK_KEYS": tile.num_keys, "MIN_KEYS": MIN_KEYS}
    attend = Launch(
        kernel=decode_attention,
        grid=(batch.num_sequences, num_blocks, splits),
        arguments={"output": output, **scratch, **_arguments(batch), "num_splits": splits},
        constants={**_constants(batch, chip), **cut, "BLOCK_ROWS": num_rows, "IS_SPLIT": splits > 1},
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return [attend] if splits == 1 else [attend, _combine_launch(batch, output, scratch, splits, cut)]


def _combine_launch(batch: Batch, output: Tensor, scratch: dict[str, Any], splits: int, cut: dict[str, int]) -> Launch:
    return Launch(
        kernel=combine_splits,
        grid=(batch.num_sequences, batch.query.shape[1]),
        arguments={
            "output": output,
            **scratch,
            "query_start": batch.query_start,
            "context_lens": batch.context_lens,
            "num_splits": splits,
            "sliding_window": batch.sliding_window,
        },
        constants={
            **cut,
            "NUM_HEADS": batch.query.shape[1],
            "VALUE_DIM": batch.value_dim,
            "VALUE_WIDTH": next_power_of_two(batch.value_dim),
            "BLOCK_SPLITS": BLOCK_SPLITS,
            "HAS_WINDOW": batch.sliding_window > 0,
        },
    )


def _tile(batch: Batch, work: Work, chip: Chip) -> Tile:
    return tile_for(chip.capability, work, batch.query.shape[2], batch.value_dim, batch.query.dtype.itemsize)


def _arguments(batch: Batch) -> dict[str, Any]:
    """That both attention kernels take."""
    inner = batch.scale / batch.softcap if batch.softcap else batch.scale
    return {
        "query": batch.query,
        "key_pages": batch.key_pages,
        "value_pages": batch.value_pages,
        "page_table": batch.page_table,
        "query_start": batch.query_start,
        "context_lens": batch.context_lens,
        "sinks": batch.sinks,
        "key_scales": batch.scales and batch.scales.key,
        "value_scales": batch.scales and batch.scales.value,
        "table_stride": batch.page_table.stride(0),
        "inner_scale": inner,
        "score_unit": (batch.softcap or batch.scale) * LOG2_E,
        "sliding_window": batch.sliding_window,
        **strides("query", batch.query),
    }


def _constants(batch: Batch, chip: Chip) -> dict[str, Any]:
    """That both attention kernels take."""
    # Scores are one sum of both parts' products; values' parts have sums of their own.
    key, value = Width(batch.query.shape[2], is_whole=not chip.can_chain_products), Width(batch.value_dim)
    return {
        "GROUP": batch.group_size,
        "NUM_KV_HEADS": batch.num_kv_heads,
        "HEAD_DIM": key.dim,
        "HEAD_LOW": key.low,
        "HEAD_HIGH": key.high,
        "VALUE_DIM": value.dim,
        "VALUE_LOW": value.low,
        "VALUE_HIGH": value.high,
        "PAGE_SIZE": batch.page_size,
        "DOT_TYPE": _dot_type(batch.query.dtype),
        "HAS_WINDOW": batch.sliding_window > 0,
        "HAS_SOFTCAP": batch.softcap > 0,
        "HAS_SINKS": batch.sinks is not None,
        "HAS_SCALES": batch.scales is not None,
    }


def _dot_type(dtype: torch.dtype) -> Any:
    # The interpreter multiplies the bits of bfloat16, not its numbers.
    return tl.float32 if triton.knobs.runtime.interpret and dtype is torch.bfloat16 else DOT_TYPES[dtype]
