"""Writes new keys and values into their pages, as they are or rounded to eight bits.

One program writes some heads of one token. Slots are the tokens' own, so nothing is written twice, save by rows that
only fill up a captured batch: they share a page that nobody reads.
"""

import triton
import triton.language as tl


@triton.jit
def round_to_e4m3(x):
    """The nearest number of float8 e4m3 (ties to even), still as float32, at most ±448. Rounded here, because the
    conversion of an exact number is the same wherever it runs. NaN stays NaN: a sequence that has lost its mind must
    not look sound again because its past was rounded."""
    NAN: tl.constexpr = tl.PropagateNan.ALL
    x = tl.minimum(tl.maximum(x, -448.0, propagate_nan=NAN), 448.0, propagate_nan=NAN)
    # Three bits below the leading one; below 2^-6 numbers are 2^-9 apart.
    exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 0xFF, 127 - 6)
    step = ((exponent - 3) << 23).to(tl.float32, bitcast=True)
    # 1.5 · 2^23: adding it leaves no bits below the one.
    return (x / step + 12582912.0 - 12582912.0) * step


@triton.jit
def store_heads(
    pages, slot, heads, columns, rows, scales, NUM_HEADS: tl.constexpr, DIM: tl.constexpr, HAS_SCALES: tl.constexpr
):
    """rows [heads, columns] to their slot; with scales in units of them."""
    if HAS_SCALES:
        scale = tl.load(scales + heads, mask=heads < NUM_HEADS, other=1.0)
        rows = round_to_e4m3(rows.to(tl.float32) / scale[:, None])
    pointers = pages + (slot * NUM_HEADS + heads[:, None]) * DIM + columns[None, :]
    mask = (heads[:, None] < NUM_HEADS) & (columns[None, :] < DIM)
    tl.store(pointers, rows.to(pages.dtype.element_ty), mask=mask)


@triton.jit
def load_heads(source, token, heads, columns, token_stride, head_stride, NUM_HEADS: tl.constexpr, DIM: tl.constexpr):
    """[heads, columns] of one token."""
    offsets = token.to(tl.int64) * token_stride + heads.to(tl.int64)[:, None] * head_stride
    mask = (heads[:, None] < NUM_HEADS) & (columns[None, :] < DIM)
    return tl.load(source + offsets + columns[None, :], mask=mask, other=0.0)


@triton.jit
def write_pages(
    key,
    value,
    key_pages,
    value_pages,
    slot_mapping,
    key_scales,
    value_scales,
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
):
    """Grid: (tokens, blocks of key/value heads)."""
    token = tl.program_id(0)
    heads = tl.program_id(1) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    slot = tl.load(slot_mapping + token)
    columns = tl.arange(0, HEAD_WIDTH)
    rows = load_heads(key, token, heads, columns, key_token_stride, key_head_stride, NUM_KV_HEADS, HEAD_DIM)
    store_heads(key_pages, slot, heads, columns, rows, key_scales, NUM_KV_HEADS, HEAD_DIM, HAS_SCALES)
    columns = tl.arange(0, VALUE_WIDTH)
    rows = load_heads(value, token, heads, columns, value_token_stride, value_head_stride, NUM_KV_HEADS, VALUE_DIM)
    store_heads(value_pages, slot, heads, columns, rows, value_scales, NUM_KV_HEADS, VALUE_DIM, HAS_SCALES)
