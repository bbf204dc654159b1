"""Rotary positions (Su et al., RoFormer, 2021) on the way: queries to a tensor, keys to their pages, in one launch.

    columns   0 … R/2-1      R/2 … R-1      R … DIM-1
              x · c - y · s   y · c + x · s   as they are         x, y: the first and the second half of R columns

Without it the rotated keys are written and read once more. The rotation is in float32 and rounds once.
"""

import triton
import triton.language as tl

from headway.engine.triton_kernels.device.write import load_heads, store_heads


@triton.jit
def load_rotated(
    source,
    cos,
    sin,
    token,
    heads,
    token_stride,
    head_stride,
    NUM_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
):
    """[heads, WIDTH] in float32, every column beside its partner of the other half."""
    HALF: tl.constexpr = ROTARY_DIM // 2
    columns = tl.arange(0, WIDTH)
    is_rotated = columns < ROTARY_DIM
    is_first = columns < HALF
    partners = tl.where(is_rotated, tl.where(is_first, columns + HALF, columns - HALF), columns)
    own = load_heads(source, token, heads, columns, token_stride, head_stride, NUM_HEADS, DIM).to(tl.float32)
    other = load_heads(source, token, heads, partners, token_stride, head_stride, NUM_HEADS, DIM).to(tl.float32)
    angle = token.to(tl.int64) * ROTARY_DIM + columns
    cosine = tl.load(cos + angle, mask=is_rotated, other=1.0).to(tl.float32)
    sine = tl.load(sin + angle, mask=is_rotated, other=0.0).to(tl.float32)
    return own * cosine[None, :] + other * tl.where(is_first, -sine, sine)[None, :]


@triton.jit
def rotate_and_write(
    rotated_query,
    query,
    key,
    value,
    cos,
    sin,
    key_pages,
    value_pages,
    slot_mapping,
    key_scales,
    value_scales,
    query_token_stride,
    query_head_stride,
    key_token_stride,
    key_head_stride,
    value_token_stride,
    value_head_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_WIDTH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
):
    """Grid: (tokens, blocks of query heads + blocks of key/value heads). rotated_query [tokens, heads, HEAD_DIM] and
    cos, sin [tokens, ROTARY_DIM] are contiguous."""
    QUERY_BLOCKS: tl.constexpr = (NUM_HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    token = tl.program_id(0)
    block = tl.program_id(1)
    columns = tl.arange(0, HEAD_WIDTH)
    if block < QUERY_BLOCKS:
        heads = block * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        queries = load_rotated(
            query, cos, sin, token, heads, query_token_stride, query_head_stride,
            NUM_HEADS, HEAD_DIM, HEAD_WIDTH, ROTARY_DIM,
        )  # fmt: skip
        # A token's place in the query is its slot there.
        place = token.to(tl.int64)
        store_heads(rotated_query, place, heads, columns, queries, key_scales, NUM_HEADS, HEAD_DIM, False)
    else:
        heads = (block - QUERY_BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
        slot = tl.load(slot_mapping + token)
        keys = load_rotated(
            key, cos, sin, token, heads, key_token_stride, key_head_stride,
            NUM_KV_HEADS, HEAD_DIM, HEAD_WIDTH, ROTARY_DIM,
        )  # fmt: skip
        store_heads(key_pages, slot, heads, columns, keys, key_scales, NUM_KV_HEADS, HEAD_DIM, HAS_SCALES)
        value_columns = tl.arange(0, VALUE_WIDTH)
        values = load_heads(
            value, token, heads, value_columns, value_token_stride, value_head_stride, NUM_KV_HEADS, VALUE_DIM
        )
        store_heads(value_pages, slot, heads, value_columns, values, value_scales, NUM_KV_HEADS, VALUE_DIM, HAS_SCALES)
