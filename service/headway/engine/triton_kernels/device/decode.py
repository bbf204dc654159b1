"""Attention of sequences with one new token each, split along their contexts (flash-decoding, Dao et al., 2023).

    context   ├──── split 0 ────┼──── split 1 ────┼─ split 2 ─┤      each a program, for each key/value head
                     │                 │                │
              output, log-sum   output, log-sum   output, log-sum    float32, in scratch
                     └────────── combined in order ─────┘            so the result does not depend on timing

How many splits there are at most is part of the grid and known to the host; how long they are is the sequence's own
matter: a short context is not cut below MIN_KEYS keys and leaves the rest of its programs with nothing to do. Only
sequences with exactly one new token are served; the others belong to the mixed kernel.
"""

import triton
import triton.language as tl

from headway.engine.triton_kernels.device.online import attend_keys, first_state, load_query, store_rows


@triton.jit
def keys_per_split(num_keys, num_splits, MIN_KEYS: tl.constexpr, BLOCK_KEYS: tl.constexpr):
    """A multiple of BLOCK_KEYS."""
    return tl.cdiv(tl.maximum(tl.cdiv(num_keys, num_splits), MIN_KEYS), BLOCK_KEYS) * BLOCK_KEYS


@triton.jit
def first_visible(context_len, sliding_window, HAS_WINDOW: tl.constexpr):
    first = 0
    if HAS_WINDOW:
        first = tl.maximum(context_len - sliding_window, 0)
    return first


@triton.jit(do_not_specialize=["num_splits", "table_stride", "sliding_window"])
def decode_attention(
    output,
    split_outputs,
    split_log_sums,
    query,
    key_pages,
    value_pages,
    page_table,
    query_start,
    context_lens,
    sinks,
    key_scales,
    value_scales,
    num_splits,
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
    MIN_KEYS: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    """Grid: (sequences, key/value heads × blocks of query heads, splits). Without splits the output is written, else
    split_outputs [sequences, query heads, splits, VALUE_DIM] and split_log_sums [sequences, query heads, splits]."""
    sequence = tl.program_id(0)
    ROW_BLOCKS: tl.constexpr = (GROUP + BLOCK_ROWS - 1) // BLOCK_ROWS
    kv_head = tl.program_id(1) // ROW_BLOCKS
    split = tl.program_id(2)
    start = tl.load(query_start + sequence)
    if tl.load(query_start + sequence + 1) - start != 1:
        return
    context_len = tl.load(context_lens + sequence)
    first = first_visible(context_len, sliding_window, HAS_WINDOW)
    size = keys_per_split(context_len - first, num_splits, MIN_KEYS, BLOCK_KEYS)
    if (split > 0) & (first + split * size >= context_len):
        return
    first += split * size

    rows = tl.program_id(1) % ROW_BLOCKS * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_real = rows < GROUP
    heads = kv_head * GROUP + rows
    query_rows = query + start.to(tl.int64) * query_token_stride + heads.to(tl.int64) * query_head_stride
    query_low = load_query(query_rows, is_real, 0, HEAD_LOW, HEAD_DIM).to(DOT_TYPE)
    query_high = query_low
    if HEAD_HIGH > 0:
        query_high = load_query(query_rows, is_real, HEAD_LOW, HEAD_HIGH, HEAD_DIM).to(DOT_TYPE)
    # The sink belongs to the softmax once, so to one split.
    row_max, row_sum = first_state(sinks, heads, is_real & (split == 0), BLOCK_ROWS, HAS_SINKS)
    if HAS_SINKS:
        row_max = tl.where(split == 0, row_max, float("-inf"))
        row_sum = tl.where(split == 0, row_sum, 0.0)
    if HAS_SCALES:
        key_scale = tl.load(key_scales + kv_head)
        inner_scale = inner_scale * key_scale
        if not HAS_SOFTCAP:
            score_unit = score_unit * key_scale
    # One loop with a mask: what it costs is hidden behind memory, a second loop's start would not be.
    sums_low, sums_high, row_max, row_sum = attend_keys(
        tl.zeros([BLOCK_ROWS, VALUE_LOW], tl.float32),
        tl.zeros([BLOCK_ROWS, VALUE_HIGH if VALUE_HIGH > 0 else 16], tl.float32),
        row_max, row_sum, query_low, query_high,
        tl.zeros([BLOCK_ROWS], tl.int32) + (context_len - 1), first, tl.minimum(first + size, context_len),
        key_pages + kv_head * HEAD_DIM, value_pages + kv_head * VALUE_DIM,
        page_table + sequence.to(tl.int64) * table_stride, inner_scale, score_unit, sliding_window,
        HEAD_DIM, HEAD_LOW, HEAD_HIGH, VALUE_DIM, VALUE_LOW, VALUE_HIGH, NUM_KV_HEADS, PAGE_SIZE,
        BLOCK_KEYS, DOT_TYPE, HAS_WINDOW, HAS_SOFTCAP, True,
    )  # fmt: skip

    factor = 1.0 / tl.where(row_sum == 0.0, 1.0, row_sum)
    if HAS_SCALES:
        factor = factor * tl.load(value_scales + kv_head)
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    if IS_SPLIT:
        places = (sequence.to(tl.int64) * NUM_HEADS + heads) * num_splits + split
        tl.store(split_log_sums + places, row_max + tl.log2(row_sum), mask=is_real)
        output_rows = split_outputs + places * VALUE_DIM
    else:
        output_rows = output + (start.to(tl.int64) * NUM_HEADS + heads) * VALUE_DIM
    store_rows(output_rows, sums_low * factor[:, None], is_real, 0, VALUE_LOW, VALUE_DIM)
    if VALUE_HIGH > 0:
        store_rows(output_rows, sums_high * factor[:, None], is_real, VALUE_LOW, VALUE_HIGH, VALUE_DIM)


@triton.jit(do_not_specialize=["num_splits", "sliding_window"])
def combine_splits(
    output,
    split_outputs,
    split_log_sums,
    query_start,
    context_lens,
    num_splits,
    sliding_window,
    NUM_HEADS: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    BLOCK_SPLITS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    MIN_KEYS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
):
    """Grid: (sequences, query heads). The outputs of a sequence's splits, weighted by their sums of exponentials."""
    sequence = tl.program_id(0)
    head = tl.program_id(1)
    start = tl.load(query_start + sequence)
    if tl.load(query_start + sequence + 1) - start != 1:
        return
    context_len = tl.load(context_lens + sequence)
    num_keys = context_len - first_visible(context_len, sliding_window, HAS_WINDOW)
    num_used = tl.maximum(tl.cdiv(num_keys, keys_per_split(num_keys, num_splits, MIN_KEYS, BLOCK_KEYS)), 1)

    place = (sequence.to(tl.int64) * NUM_HEADS + head) * num_splits
    columns = tl.arange(0, VALUE_WIDTH)
    top = float("-inf")
    total = 0.0
    sums = tl.zeros([VALUE_WIDTH], tl.float32)
    for block in range(0, num_used, BLOCK_SPLITS):
        splits = block + tl.arange(0, BLOCK_SPLITS)
        is_used = splits < num_used
        log_sums = tl.load(split_log_sums + place + splits, mask=is_used, other=float("-inf"))
        rows = split_outputs + (place + splits[:, None]) * VALUE_DIM + columns[None, :]
        outputs = tl.load(rows, mask=is_used[:, None] & (columns[None, :] < VALUE_DIM), other=0.0)
        new_top = tl.maximum(top, tl.max(log_sums, 0))
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(log_sums - shift)
        decay = tl.exp2(top - shift)
        sums = sums * decay + tl.sum(outputs * weights[:, None], 0)
        total = total * decay + tl.sum(weights, 0)
        top = new_top
    result = sums / tl.where(total == 0.0, 1.0, total)
    row = output + (start.to(tl.int64) * NUM_HEADS + head) * VALUE_DIM + columns
    tl.store(row, result.to(output.dtype.element_ty), mask=columns < VALUE_DIM)
