"""What is launched depends on shapes alone: batches here have no memory that could be read."""

from __future__ import annotations

import itertools

import pytest
import torch

from headway.engine.triton_kernels.attend import attention_launches, mixed_launch
from headway.engine.triton_kernels.launch import Chip
from headway.engine.triton_kernels.splits import MAX_KEYS
from headway.engine.triton_kernels.write import write_launch
from tests.engine.triton_kernels.shapes import unreal, unreal_batch, unreal_output

H100 = Chip(90, 132)


def launched_on(chip, batch):
    return attention_launches(batch, unreal_output(batch), chip)


def launched(**shape):
    return launched_on(H100, unreal_batch(**shape))


def names(launches):
    return [launch.kernel.__name__ for launch in launches]


def test_one_token_each_is_the_decode_kernels_work():
    assert names(launched(num_tokens=1, num_sequences=1)) == ["decode_attention", "combine_splits"]
    assert names(launched(num_tokens=64, num_sequences=64, max_keys=256)) == ["decode_attention"]


def test_chunks_and_decodes_take_one_launch():
    assert names(launched(num_tokens=700, num_sequences=65)) == ["mixed_attention"]


def test_long_contexts_take_their_decodes_elsewhere():
    launches = launched(num_tokens=700, num_sequences=65, max_keys=2 * MAX_KEYS)
    assert names(launches) == ["mixed_attention", "decode_attention", "combine_splits"]
    assert launches[0].constants["SKIP_DECODES"]


def test_a_window_bounds_what_there_is_to_split():
    assert names(launched(num_tokens=1, num_sequences=1, sliding_window=128)) == ["decode_attention"]
    assert names(launched(num_tokens=9, num_sequences=2, max_keys=10**6, sliding_window=128)) == ["mixed_attention"]


@pytest.mark.parametrize("group_size", [1, 3, 8, 71])
@pytest.mark.parametrize("query_lens", [[1, 1, 1, 300], [128, 1, 127, 129], [1000], [2] * 100])
def test_every_tile_of_every_sequence_has_a_program_of_its_own(group_size, query_lens):
    starts = [sum(query_lens[:index]) for index in range(len(query_lens) + 1)]
    batch = unreal_batch(
        num_tokens=starts[-1], num_sequences=len(query_lens), num_heads=group_size, num_kv_heads=1, max_keys=1024
    )
    launch = mixed_launch(batch, unreal_output(batch), H100)
    num_rows = launch.constants["BLOCK_ROWS"]
    first_tiles = [start * group_size // num_rows + index for index, start in enumerate(starts)]
    needed = [-(-length * group_size // num_rows) for length in query_lens]
    given = [end - start for start, end in itertools.pairwise(first_tiles)]
    assert all(given_tiles >= tiles for given_tiles, tiles in zip(given, needed, strict=True))
    assert launch.grid[0] == first_tiles[-1]
    assert sum(given) - sum(needed) <= len(query_lens)


def test_products_are_not_chained_where_that_goes_wrong():
    batch = unreal_batch(dim=80)
    for chip, parts in ((H100, (64, 16)), (Chip(100, 148), (128, 0))):
        for launch in (mixed_launch(batch, unreal_output(batch), chip), launched_on(chip, batch)[0]):
            assert (launch.constants["HEAD_LOW"], launch.constants["HEAD_HIGH"]) == parts


def test_an_empty_window_or_cap_costs_nothing():
    constants = launched(num_tokens=9, num_sequences=2)[0].constants
    assert not any(constants[name] for name in ("HAS_WINDOW", "HAS_SOFTCAP", "HAS_SINKS", "HAS_SCALES"))


def test_a_token_is_written_by_few_programs():
    batch = unreal_batch()
    new = unreal(64, 8, 128, dtype=torch.bfloat16)
    assert write_launch(new, new, batch.key_pages, batch.value_pages, unreal(64)).grid == (64, 1)
