"""The least weight that top-k and top-p leave of a row, by bisection: two bits at a time, three sums in each pass.

    digit by digit, base 4      found = 0, then for each unit 4^20 … 4^0:
    a pass over the row         how much lies at or above  found + unit, found + 2 · unit, found + 3 · unit
    found + unit · (how many of the three are enough)

One program per row. A row of 128,000 weights is a megabyte, which a pass reads from the second-level cache or memory; a
row that is settled already costs nothing. Sums are of integers, so their order does not matter.
"""

import triton
import triton.language as tl


@triton.jit
def largest_with_enough(
    row, enough, least, vocab_size, COUNTS: tl.constexpr, NUM_DIGITS: tl.constexpr, BLOCK: tl.constexpr
):
    """The largest number v such that of the weights ≥ ``least`` those ≥ v add up to ``enough``; with COUNTS, that they
    are as many."""
    found = tl.full([], 0, tl.int64)
    for digit in range(NUM_DIGITS):
        unit = tl.full([], 1, tl.int64) << (2 * (NUM_DIGITS - 1 - digit))
        first = tl.zeros([BLOCK], tl.int64)
        second = tl.zeros([BLOCK], tl.int64)
        third = tl.zeros([BLOCK], tl.int64)
        for start in range(0, vocab_size, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            weights = tl.load(row + columns, mask=columns < vocab_size, other=0)
            weights = tl.where(weights >= least, weights, 0)
            amounts = tl.full([BLOCK], 1, tl.int64) if COUNTS else weights
            first += tl.where(weights >= found + unit, amounts, 0)
            second += tl.where(weights >= found + 2 * unit, amounts, 0)
            third += tl.where(weights >= found + 3 * unit, amounts, 0)
        is_first = (tl.sum(first, 0).to(tl.float64) >= enough).to(tl.int64)
        is_second = (tl.sum(second, 0).to(tl.float64) >= enough).to(tl.int64)
        is_third = (tl.sum(third, 0).to(tl.float64) >= enough).to(tl.int64)
        found += unit * (is_first + is_second + is_third)
    return found


@triton.jit
def total_of(row, least, vocab_size, BLOCK: tl.constexpr):
    """Of the weights ≥ ``least``."""
    sums = tl.zeros([BLOCK], tl.int64)
    for start in range(0, vocab_size, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        weights = tl.load(row + columns, mask=columns < vocab_size, other=0)
        sums += tl.where(weights >= least, weights, 0)
    return tl.sum(sums, 0)


@triton.jit
def settle_rows(
    output,
    least,
    is_settled,
    weights,
    top_k,
    top_p,
    vocab_size,
    NUM_DIGITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Grid: (rows,). Arguments as the op's, contiguous; ``is_settled`` in bytes."""
    row = tl.program_id(0)
    result = tl.load(least + row)
    if tl.load(is_settled + row) == 0:
        own = weights + row.to(tl.int64) * vocab_size
        enough = tl.load(top_k + row)
        by_rank = tl.full([], 0, tl.int64)
        if enough < vocab_size:
            by_rank = largest_with_enough(own, enough.to(tl.float64), by_rank, vocab_size, True, NUM_DIGITS, BLOCK)
        budget = tl.load(top_p + row) * total_of(own, by_rank, vocab_size, BLOCK).to(tl.float64)
        nucleus = largest_with_enough(own, budget, by_rank, vocab_size, False, NUM_DIGITS, BLOCK)
        result = tl.maximum(by_rank, nucleus)
    tl.store(output + row, result)
