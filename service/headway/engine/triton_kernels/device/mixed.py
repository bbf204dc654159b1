"""Attention of a ragged batch, chunks of prompts and decodes alike, in one launch.

    sequence b's rows: its new tokens × the query heads of one group, end to end
        token 0: head 0, 1, … G-1 │ token 1: head 0 … │ …
        ├────────── tile ─────────┼───── tile ─────┼──  BLOCK_ROWS rows each, the last one partly used

Rows of a tile share the keys and values that they read, whatever the size G of the group, and no sequence is padded but
in its last tile. Which tile is whose is found on the device: sequence b's first tile is
query_start[b] · G // BLOCK_ROWS + b, which grows with b and leaves every sequence as many tiles as it needs and at most
one more. So the grid depends on shapes that the host knows, and nobody waits for lengths.
"""

import triton
import triton.language as tl

from headway.engine.triton_kernels.device.online import attend_keys, first_state, load_query, store_rows


@triton.jit
def sequence_of_tile(tile, query_start, num_sequences, GROUP: tl.constexpr, BLOCK_ROWS: tl.constexpr):
    """The last sequence whose first tile is not after this one."""
    low = 0
    high = num_sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(query_start + middle) * GROUP // BLOCK_ROWS + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@triton.jit(do_not_specialize=["num_sequences", "table_stride", "sliding_window"])
def mixed_attention(
    output,
    query,
    key_pages,
    value_pages,
    page_table,
    query_start,
    context_lens,
    sinks,
    key_scales,
    value_scales,
    num_sequences,
    query_token_stride,
    query_head_stride,
    table_stride,
    inner_scale,
    score_unit,
    sliding_window,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_LOW: tl.constexpr,
    HEAD_HIGH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_LOW: tl.constexpr,
    VALUE_HIGH: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    SKIP_DECODES: tl.constexpr,
):
    """Grid: (tiles, key/value heads). Arguments as the op's; the output is contiguous."""
    sequence = sequence_of_tile(tl.program_id(0), query_start, num_sequences, GROUP, BLOCK_ROWS)
    kv_head = tl.program_id(1)
    start = tl.load(query_start + sequence)
    num_tokens = tl.load(query_start + sequence + 1) - start
    if SKIP_DECODES and num_tokens == 1:
        return
    num_rows = num_tokens * GROUP
    num_tiles = tl.cdiv(num_rows, BLOCK_ROWS)
    tile = tl.program_id(0) - (start * GROUP // BLOCK_ROWS + sequence)
    if tile >= num_tiles:
        return
    # Later rows see more keys. The longest work goes first, so that the last programs to run are short.
    first_row = (num_tiles - 1 - tile) * BLOCK_ROWS

    rows = first_row + tl.arange(0, BLOCK_ROWS)
    is_real = rows < num_rows
    tokens = rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    past = tl.load(context_lens + sequence) - num_tokens
    first_position = past + first_row // GROUP
    last_position = past + tl.minimum((first_row + BLOCK_ROWS - 1) // GROUP, num_tokens - 1)

    query_rows = query + (start + tokens).to(tl.int64) * query_token_stride + heads.to(tl.int64) * query_head_stride
    query_low = load_query(query_rows, is_real, 0, HEAD_LOW, HEAD_DIM).to(DOT_TYPE)
    query_high = query_low
    if HEAD_HIGH > 0:
        query_high = load_query(query_rows, is_real, HEAD_LOW, HEAD_HIGH, HEAD_DIM).to(DOT_TYPE)
    row_max, row_sum = first_state(sinks, heads, is_real, BLOCK_ROWS, HAS_SINKS)
    sums_low = tl.zeros([BLOCK_ROWS, VALUE_LOW], tl.float32)
    sums_high = tl.zeros([BLOCK_ROWS, VALUE_HIGH if VALUE_HIGH > 0 else 16], tl.float32)
    if HAS_SCALES:
        key_scale = tl.load(key_scales + kv_head)
        inner_scale = inner_scale * key_scale
        if not HAS_SOFTCAP:
            score_unit = score_unit * key_scale

    key_head = key_pages + kv_head * HEAD_DIM
    value_head = value_pages + kv_head * VALUE_DIM
    table = page_table + sequence.to(tl.int64) * table_stride
    # Keys that every row sees come first, without any mask. A window has two ragged ends and is short: all masked.
    masked_from = 0
    if HAS_WINDOW:
        masked_from = tl.maximum(first_position + 1 - sliding_window, 0)
    else:
        masked_from = (first_position + 1) // BLOCK_KEYS * BLOCK_KEYS
        sums_low, sums_high, row_max, row_sum = attend_keys(
            sums_low, sums_high, row_max, row_sum, query_low, query_high, past + tokens, 0, masked_from,
            key_head, value_head, table, inner_scale, score_unit, sliding_window,
            HEAD_DIM, HEAD_LOW, HEAD_HIGH, VALUE_DIM, VALUE_LOW, VALUE_HIGH, NUM_KV_HEADS, PAGE_SIZE,
            BLOCK_KEYS, DOT_TYPE, HAS_WINDOW, HAS_SOFTCAP, False,
        )  # fmt: skip
    sums_low, sums_high, row_max, row_sum = attend_keys(
        sums_low, sums_high, row_max, row_sum, query_low, query_high, past + tokens, masked_from, last_position + 1,
        key_head, value_head, table, inner_scale, score_unit, sliding_window,
        HEAD_DIM, HEAD_LOW, HEAD_HIGH, VALUE_DIM, VALUE_LOW, VALUE_HIGH, NUM_KV_HEADS, PAGE_SIZE,
        BLOCK_KEYS, DOT_TYPE, HAS_WINDOW, HAS_SOFTCAP, True,
    )  # fmt: skip

    factor = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    if HAS_SCALES:
        factor = factor * tl.load(value_scales + kv_head)
    output_rows = output + ((start + tokens).to(tl.int64) * (NUM_KV_HEADS * GROUP) + heads) * VALUE_DIM
    store_rows(output_rows, sums_low * factor[:, None], is_real, 0, VALUE_LOW, VALUE_DIM)
    if VALUE_HIGH > 0:
        store_rows(output_rows, sums_high * factor[:, None], is_real, VALUE_LOW, VALUE_HIGH, VALUE_DIM)
