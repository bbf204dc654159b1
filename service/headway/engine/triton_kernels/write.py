"""From new keys and values to launches of the kernels that write pages."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from headway.engine.page_scales import Scales
from headway.engine.triton_kernels.device.rotate import rotate_and_write
from headway.engine.triton_kernels.device.write import write_pages
from headway.engine.triton_kernels.launch import Launch, strides
from headway.engine.triton_kernels.tiles import next_power_of_two

BLOCK_ELEMENTS = 4096
"""Of one program, about."""


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
            **strides("key", key),
            **strides("value", value),
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
            **strides("query", query),
            **strides("key", key),
            **strides("value", value),
        },
        constants={**constants, "NUM_HEADS": num_heads, "ROTARY_DIM": cos.shape[-1]},
    )


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
        "BLOCK_HEADS": min(next_power_of_two(num_kv_heads), max(1, BLOCK_ELEMENTS // max(key_width, value_width))),
        "HAS_SCALES": scales is not None,
    }
