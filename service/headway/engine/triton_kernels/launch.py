"""From the op's tensors to launches: constants, arguments and grids of the kernels.

A `Launch` is plain data. The op runs it; a test compiles it for a GPU that is not there, or looks at its grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headway.engine.triton_kernels.device.decode import combine_splits, decode_attention
from headway.engine.triton_kernels.device.mixed import mixed_attention
from headway.engine.triton_kernels.device.rotate import rotate_and_write
from headway.engine.triton_kernels.device.write import write_pages
from headway.engine.triton_kernels.splits import MAX_KEYS, MIN_KEYS, num_splits
from headway.engine.triton_kernels.tiles import Tile, Width, Work, next_power_of_two, tile_for

LOG2_E = math.log2(math.e)
BLOCK_SPLITS = 16
MAX_DECODE_ROWS = 64
"""Query heads of one program; larger groups take several."""
WRITE_ELEMENTS = 4096
"""Of one program that writes pages, about."""
DOT_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True, slots=True)
class Chip:
    """What the launches depend on."""

    capability: int
    """× 10: 90 for 9.0."""
    num_multiprocessors: int


@dataclass(frozen=True, slots=True)
class Scales:
    """[Hkv] float32 each: what a number in a page of eight bits is to be multiplied with, by head."""

    key: Tensor
    value: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """The op's arguments without what is written; shapes as in `headway.engine.attention`."""

    query: Tensor
    key_pages: Tensor
    value_pages: Tensor
    page_table: Tensor
    query_start: Tensor
    context_lens: Tensor
    scale: float
    sliding_window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None
    scales: Scales | None = None

    @property
    def num_sequences(self) -> int:
        return len(self.context_lens)

    @property
    def num_kv_heads(self) -> int:
        return self.key_pages.shape[2]

    @property
    def group_size(self) -> int:
        return self.query.shape[1] // self.num_kv_heads

    @property
    def page_size(self) -> int:
        return self.key_pages.shape[1]

    @property
    def value_dim(self) -> int:
        return self.value_pages.shape[3]

    @property
    def max_keys(self) -> int:
        """That one query of any sequence can see: known without its length."""
        table = self.page_table.shape[1] * self.page_size
        return min(table, self.sliding_window) if self.sliding_window else table


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, ready to go."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    constants: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 1

    def run(self) -> None:
        self.kernel[self.grid](
            **self.arguments, **self.constants, num_warps=self.num_warps, num_stages=self.num_stages
        )


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
            **_constants(batch),
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
    splits = num_splits(batch.num_sequences * num_blocks, batch.max_keys, chip.num_multiprocessors * 2)
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
        constants={**_constants(batch), **cut, "BLOCK_ROWS": num_rows, "IS_SPLIT": splits > 1},
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return [attend] if splits == 1 else [attend, _combine_launch(batch, output, scratch, splits, cut)]


def _combine_launch(
    batch: Batch, output: Tensor, scratch: dict[str, Any], splits: int, cut: dict[str, int]
) -> Launch:
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


def write_launch(
    key: Tensor,
    value: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    slot_mapping: Tensor,
    scales: Scales | None = None,
) -> Launch:
    constants = _write_constants(key_pages, value_pages, scales)
    num_blocks = -(-constants["NUM_KV_HEADS"] // constants["BLOCK_HEADS"])
    return Launch(
        kernel=write_pages,
        grid=(len(key), num_blocks),
        arguments={
            "key": key,
            "value": value,
            **_write_arguments(key_pages, value_pages, slot_mapping, scales),
            **_strides("key", key),
            **_strides("value", value),
        },
        constants=constants,
    )


def rotate_launch(
    rotated_query: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cos: Tensor,
    sin: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    slot_mapping: Tensor,
    scales: Scales | None = None,
) -> Launch:
    """``cos`` and ``sin`` [T, R] as transformers makes them, both halves alike; R columns of a head are rotated."""
    constants = _write_constants(key_pages, value_pages, scales)
    num_heads, block = query.shape[1], constants["BLOCK_HEADS"]
    return Launch(
        kernel=rotate_and_write,
        grid=(len(key), -(-num_heads // block) + -(-constants["NUM_KV_HEADS"] // block)),
        arguments={
            "rotated_query": rotated_query,
            "query": query,
            "key": key,
            "value": value,
            "cos": cos,
            "sin": sin,
            **_write_arguments(key_pages, value_pages, slot_mapping, scales),
            **_strides("query", query),
            **_strides("key", key),
            **_strides("value", value),
        },
        constants={**constants, "NUM_HEADS": num_heads, "ROTARY_DIM": cos.shape[-1]},
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
        **_strides("query", batch.query),
    }


def _constants(batch: Batch) -> dict[str, Any]:
    """That both attention kernels take."""
    key, value = Width(batch.query.shape[2]), Width(batch.value_dim)
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


def _write_arguments(
    key_pages: Tensor, value_pages: Tensor, slot_mapping: Tensor, scales: Scales | None
) -> dict[str, Any]:
    return {
        "key_pages": key_pages,
        "value_pages": value_pages,
        "slot_mapping": slot_mapping,
        "key_scales": scales and scales.key,
        "value_scales": scales and scales.value,
    }


def _write_constants(key_pages: Tensor, value_pages: Tensor, scales: Scales | None) -> dict[str, Any]:
    num_kv_heads, key_dim, value_dim = key_pages.shape[2], key_pages.shape[3], value_pages.shape[3]
    key_width, value_width = next_power_of_two(key_dim), next_power_of_two(value_dim)
    return {
        "NUM_KV_HEADS": num_kv_heads,
        "HEAD_DIM": key_dim,
        "HEAD_WIDTH": key_width,
        "VALUE_DIM": value_dim,
        "VALUE_WIDTH": value_width,
        "BLOCK_HEADS": min(next_power_of_two(num_kv_heads), max(1, WRITE_ELEMENTS // max(key_width, value_width))),
        "HAS_SCALES": scales is not None,
    }


def _strides(name: str, tensor: Tensor) -> dict[str, int]:
    """Of [tokens, heads, width], where only columns must lie side by side."""
    return {f"{name}_token_stride": tensor.stride(0), f"{name}_head_stride": tensor.stride(1)}
