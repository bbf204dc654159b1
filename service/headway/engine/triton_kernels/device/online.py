"""The heart of both attention kernels: one pass over some keys of one sequence, with an online softmax.

    rows           queries × heads of one key/value head        M of them, a tile
    keys           BLOCK_KEYS at a time, gathered through the page table, never copied

    scores  [M, K] = query · keysᵀ                              matrix instructions
    weights [M, K] = exp2(scores · unit - row maximum so far)   float32
    sums    [M, V] = sums · decay + weights · values            matrix instructions, float32

after Milakov and Gimelshein (2018) and Dao (FlashAttention-2, 2023). Scores are kept in units of log2: the unit holds
the scale and log2(e), so that the exponential is one instruction and the multiplication fuses with the subtraction.

Heads that are no power of two wide are split into two powers of two, 80 = 64 + 16, 96 = 64 + 32, each a product of
its own: padding to 128 would waste 60 % and 33 % of the arithmetic. HIGH is 0 where there is no second part.

Masked loads give zeros: what lies in slots that no row may see (NaN, another sequence) never enters a register, and
0 · NaN does not come up.
"""

import triton
import triton.language as tl


@triton.jit
def load_rows(
    pages,
    slots,
    inside,
    FIRST: tl.constexpr,
    WIDTH: tl.constexpr,
    DIM: tl.constexpr,
    SLOT_STRIDE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """[slots, WIDTH]: columns FIRST … of each slot; zero beyond DIM and, if MASKED, outside."""
    columns = FIRST + tl.arange(0, WIDTH)
    pointers = pages + slots[:, None] * SLOT_STRIDE + columns[None, :]
    if FIRST + WIDTH > DIM:
        if MASKED:
            rows = tl.load(pointers, mask=inside[:, None] & (columns[None, :] < DIM), other=0.0)
        else:
            rows = tl.load(pointers, mask=columns[None, :] < DIM, other=0.0)
    else:
        rows = tl.load(pointers, mask=inside[:, None], other=0.0) if MASKED else tl.load(pointers)
    return rows


@triton.jit
def tanh(x):
    """From the exponential, which every target and the interpreter have; right at both infinities."""
    return 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)


@triton.jit
def first_state(sinks, heads, is_real, ROWS: tl.constexpr, HAS_SINKS: tl.constexpr):
    """Maximum and sum per row before any key: a sink is a score that brings no value."""
    if HAS_SINKS:
        row_max = tl.load(sinks + heads, mask=is_real, other=0.0).to(tl.float32) * 1.4426950408889634
        row_sum = tl.full([ROWS], 1.0, tl.float32)
    else:
        row_max = tl.full([ROWS], float("-inf"), tl.float32)
        row_sum = tl.zeros([ROWS], tl.float32)
    return row_max, row_sum


@triton.jit
def attend_keys(
    sums_low,
    sums_high,
    row_max,
    row_sum,
    query_low,
    query_high,
    row_positions,
    first,
    last,
    key_pages,
    value_pages,
    page_table,
    inner_scale,
    score_unit,
    sliding_window,
    HEAD_DIM: tl.constexpr,
    HEAD_LOW: tl.constexpr,
    HEAD_HIGH: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_LOW: tl.constexpr,
    VALUE_HIGH: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The state after the keys at positions first ≤ n < last. Unless MASKED every row sees every one of them, and
    last - first is a multiple of BLOCK_KEYS. Pages point at the head, the table at the sequence."""
    for start in range(first, last, BLOCK_KEYS):
        keys = start + tl.arange(0, BLOCK_KEYS)
        inside = keys < last
        if MASKED:
            pages = tl.load(page_table + keys // PAGE_SIZE, mask=inside, other=0)
        else:
            pages = tl.load(page_table + keys // PAGE_SIZE)
        # A cache may hold more than 2^31 elements.
        slots = pages.to(tl.int64) * PAGE_SIZE + keys % PAGE_SIZE
        KEY_STRIDE: tl.constexpr = NUM_KV_HEADS * HEAD_DIM
        key_low = load_rows(key_pages, slots, inside, 0, HEAD_LOW, HEAD_DIM, KEY_STRIDE, MASKED)
        scores = tl.dot(query_low, tl.trans(key_low.to(DOT_TYPE)), input_precision="ieee")
        if HEAD_HIGH > 0:
            key_high = load_rows(key_pages, slots, inside, HEAD_LOW, HEAD_HIGH, HEAD_DIM, KEY_STRIDE, MASKED)
            scores = tl.dot(query_high, tl.trans(key_high.to(DOT_TYPE)), scores, input_precision="ieee")
        if HAS_SOFTCAP:
            scores = tanh(scores * inner_scale)
        if MASKED:
            visible = inside[None, :] & (keys[None, :] <= row_positions[:, None])
            if HAS_WINDOW:
                visible = visible & (keys[None, :] > row_positions[:, None] - sliding_window)
            scores = tl.where(visible, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * score_unit)
        # A row that has seen nothing yet: -inf - -inf is no number.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        weights = tl.exp2(scores * score_unit - shift[:, None])
        decay = tl.exp2(row_max - shift)
        row_max = new_max
        row_sum = row_sum * decay + tl.sum(weights, 1)
        weights = weights.to(DOT_TYPE)
        VALUE_STRIDE: tl.constexpr = NUM_KV_HEADS * VALUE_DIM
        value_low = load_rows(value_pages, slots, inside, 0, VALUE_LOW, VALUE_DIM, VALUE_STRIDE, MASKED)
        sums_low = tl.dot(weights, value_low.to(DOT_TYPE), sums_low * decay[:, None], input_precision="ieee")
        if VALUE_HIGH > 0:
            value_high = load_rows(value_pages, slots, inside, VALUE_LOW, VALUE_HIGH, VALUE_DIM, VALUE_STRIDE, MASKED)
            sums_high = tl.dot(weights, value_high.to(DOT_TYPE), sums_high * decay[:, None], input_precision="ieee")
    return sums_low, sums_high, row_max, row_sum


@triton.jit
def load_query(pointers, is_real, FIRST: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """[rows, WIDTH]; zero beyond DIM and in rows that are none."""
    columns = FIRST + tl.arange(0, WIDTH)
    return tl.load(pointers[:, None] + columns[None, :], mask=is_real[:, None] & (columns[None, :] < DIM), other=0.0)


@triton.jit
def store_rows(pointers, rows, is_real, FIRST: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    columns = FIRST + tl.arange(0, WIDTH)
    mask = is_real[:, None] & (columns[None, :] < DIM)
    tl.store(pointers[:, None] + columns[None, :], rows.to(pointers.dtype.element_ty), mask=mask)
