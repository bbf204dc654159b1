from __future__ import annotations

import pytest

from headway.engine.triton_kernels.tiles import FLOAT32_TILES, TILES, Width, Work, tile_for


@pytest.mark.parametrize(
    ("dim", "low", "high"),
    [(8, 16, 0), (16, 16, 0), (17, 16, 16), (64, 64, 0), (80, 64, 16), (96, 64, 32), (112, 64, 64), (256, 256, 0)],
)
def test_a_head_is_split_into_powers_of_two(dim, low, high):
    assert (Width(dim).low, Width(dim).high) == (low, high)


@pytest.mark.parametrize(("dim", "low"), [(8, 16), (64, 64), (80, 128), (256, 256)])
def test_or_padded_to_one(dim, low):
    assert (Width(dim, is_whole=True).low, Width(dim, is_whole=True).high) == (low, 0)


@pytest.mark.parametrize("dim", range(1, 257))
def test_every_column_is_covered_and_never_twice_as_many(dim):
    width = Width(dim)
    assert dim <= width.padded <= max(16, 2 * dim)
    assert all(part == 0 or (part >= 16 and part & (part - 1) == 0) for part in (width.low, width.high))


@pytest.mark.parametrize("work", Work)
@pytest.mark.parametrize("dim", [1, 64, 80, 128, 130, 256])
def test_every_head_size_has_a_tile_on_any_chip(work, dim):
    assert tile_for(90, work, dim, 16, 2) == tile_for(100, work, 16, dim, 2)
    assert tile_for(80, work, dim, 16, 2) == tile_for(86, work, dim, dim, 2) == tile_for(120, work, 16, dim, 2)


def test_a_chip_may_have_a_tile_of_its_own():
    assert tile_for(89, Work.MIXED, 256, 256, 2) == TILES[89, Work.MIXED, 256] != TILES[80, Work.MIXED, 256]


@pytest.mark.parametrize("tile", [*TILES.values(), *FLOAT32_TILES.values()], ids=str)
def test_tiles_are_powers_of_two_that_matrix_instructions_take(tile):
    for number in (tile.num_rows, tile.num_keys, tile.num_warps):
        assert number & (number - 1) == 0
    assert tile.num_rows >= 16
    assert tile.num_keys >= 16
