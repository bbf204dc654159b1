from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.captured.ladder import MAX_BATCH_SIZE, DecodeShape, Ladder, best_fit
from headway.engine.triton_kernels.splits import MIN_KEYS, num_splits

NUM_SLOTS = 264
"""Programs that an H200 runs at once."""


def make_ladder(max_num_seqs: int = 64, max_model_len: int = 131_072, page_size: int = 16) -> Ladder:
    return Ladder(max_num_seqs, max_model_len, page_size)


@given(st.integers(1, 2000))
def test_batch_sizes_grow_and_end_with_the_largest_batch(max_num_seqs: int) -> None:
    sizes = make_ladder(max_num_seqs).batch_sizes
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == min(max(max_num_seqs, 2), MAX_BATCH_SIZE)
    assert len(sizes) <= 34


@given(st.integers(1, 600), st.data())
def test_padding_is_bounded(max_num_seqs: int, data: st.DataObject) -> None:
    sizes = make_ladder(max_num_seqs).batch_sizes
    batch_size = data.draw(st.integers(1, sizes[-1]))
    num_padded = next(size for size in sizes if size >= batch_size) - batch_size
    assert num_padded < max(8, batch_size / 8)
    assert num_padded <= batch_size


def test_the_sizes_of_the_default() -> None:
    assert make_ladder(64).batch_sizes == (2, 4, 8, 16, 24, 32, 40, 48, 56, 64)
    assert len(make_ladder(512).batch_sizes) == 34


@given(st.integers(2, 2_000_000), st.sampled_from([1, 16, 128]))
def test_widths_grow_by_four_and_end_with_the_longest_sequence(max_model_len: int, page_size: int) -> None:
    widths = make_ladder(max_model_len=max_model_len, page_size=page_size).widths
    assert widths[-1] * page_size >= max_model_len > (widths[-1] - 1) * page_size
    assert list(widths) == sorted(widths)
    assert all(wider <= 4 * width for width, wider in pairwise(widths))
    assert len(widths) <= 5


def test_a_short_model_has_one_width() -> None:
    assert make_ladder(max_model_len=8192).widths == (512,)
    assert make_ladder(max_model_len=131_072).widths == (512, 2048, 8192)


def test_short_contexts_are_captured_first_and_large_batches_before_small_ones() -> None:
    shapes = make_ladder(max_num_seqs=4, max_model_len=20_000).shapes
    assert shapes == (DecodeShape(4, 512), DecodeShape(2, 512), DecodeShape(4, 1250), DecodeShape(2, 1250))


def test_the_narrowest_shape_that_holds_a_step_is_taken_and_then_the_smallest() -> None:
    shapes = make_ladder(max_num_seqs=16, max_model_len=20_000).shapes
    assert best_fit(shapes, 3, 100) == DecodeShape(4, 512)
    assert best_fit(shapes, 4, 512) == DecodeShape(4, 512)
    assert best_fit(shapes, 5, 513) == DecodeShape(8, 1250)
    assert best_fit(shapes, 17, 1) is None
    assert best_fit(shapes, 1, 1251) is None
    assert best_fit(shapes[:1], 1, 1) == DecodeShape(16, 512)


@pytest.mark.parametrize("num_kv_heads", [1, 4, 8])
@given(st.integers(1, 64), st.integers(1, 131_072))
def test_a_table_of_the_shapes_width_costs_attention_little(num_kv_heads: int, batch_size: int, num_keys: int) -> None:
    """Against a table that ends with the longest context: keys that the machine's rounds read one after the other."""
    widths = make_ladder().widths
    padded_size = next(size for size in make_ladder().batch_sizes if size >= batch_size)
    own_width = -(-num_keys // 16)
    width = next(width for width in widths if width >= own_width)
    own = rounds_of_keys(batch_size * num_kv_heads, batch_size * num_kv_heads, num_keys, own_width)
    padded = rounds_of_keys(padded_size * num_kv_heads, batch_size * num_kv_heads, num_keys, width)
    assert padded <= 2 * own


def rounds_of_keys(num_launched: int, num_real: int, num_keys: int, num_columns: int) -> int:
    splits = num_splits(num_launched, num_columns * 16, NUM_SLOTS)
    keys_per_split = max(-(-num_keys // splits), MIN_KEYS)
    num_used = -(-num_keys // keys_per_split)
    return -(-num_real * num_used // NUM_SLOTS) * min(keys_per_split, num_keys)
