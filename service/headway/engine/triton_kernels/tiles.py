"""How the kernels are cut into tiles on which GPU: a small table instead of measuring at run time, so that the first
step is as fast as the rest and every program that can run is known, and compiled by the tests, beforehand.

What limits a tile, per program (registers: 65,536 of 32 bits per multiprocessor, 255 per thread):

- **Sums in float32**: rows × value width / threads registers each, and scores rows × keys / threads beside them. Mixed,
  width 128: 128 · 128 / 256 = 64 and 128 · 64 / 256 = 32. On 8.0 the operands pass through registers too, so tiles are
  smaller there.
- **Shared memory**: keys · (key width + value width) · bytes for every tile of keys under way, and the query's tile.
  A program may use 227 KiB on compute capability 9.0, 163 KiB on 8.0, 99 KiB on 8.6, 8.9 and 12.0.
- **Rows**: on 9.0 the warpgroup's matrix instruction takes 64 rows per four warps, so mixed tiles have 64 or 128.
  Decodes have a group's few heads, padded to the 16 rows of the smaller instruction: they wait for memory, not for it.
- **Stages**: keys wait for a look-up in the page table, which is loaded ahead as well, so it takes two stages for each
  tile of keys under way and one for the arithmetic: five for two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SHARED_BYTES = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
"""Most that one program may use, by compute capability × 10 (CUDA C++ Programming Guide, technical specifications)."""
MAX_WIDTH = 256


class Work(StrEnum):
    """What a tile is for."""

    MIXED = "mixed"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Tile:
    """One program's share of the work."""

    num_rows: int
    """Queries × heads; for decodes the least, since a group of heads may need more."""
    num_keys: int
    """Read at a time."""
    num_warps: int
    num_stages: int


TILES: dict[tuple[int, Work, int], Tile] = {
    (90, Work.MIXED, 64): Tile(128, 64, 8, 5),
    (90, Work.MIXED, 128): Tile(128, 64, 8, 5),
    (90, Work.MIXED, 256): Tile(64, 32, 8, 5),
    (90, Work.DECODE, 64): Tile(16, 64, 4, 5),
    (90, Work.DECODE, 128): Tile(16, 64, 4, 5),
    (90, Work.DECODE, 256): Tile(16, 32, 4, 5),
    (80, Work.MIXED, 64): Tile(64, 64, 4, 5),
    (80, Work.MIXED, 128): Tile(128, 32, 8, 5),
    (80, Work.MIXED, 256): Tile(32, 16, 4, 5),
    (80, Work.DECODE, 64): Tile(16, 64, 4, 5),
    (80, Work.DECODE, 128): Tile(16, 64, 4, 5),
    (80, Work.DECODE, 256): Tile(16, 32, 4, 5),
    # 8.0's spills there: the assembler aims at more programs side by side.
    (89, Work.MIXED, 256): Tile(16, 16, 4, 5),
}
"""By compute capability × 10, work, and width of the wider of key and value. For 16-bit types."""
FLOAT32_TILES = {Work.MIXED: Tile(16, 16, 4, 3), Work.DECODE: Tile(16, 16, 8, 3)}
"""Multiplied without matrix instructions, which would round: sums and operands are all in registers."""


@dataclass(frozen=True, slots=True)
class Width:
    """A head's columns as powers of two: 80 = 64 + 16. The second may be 0."""

    dim: int
    is_whole: bool = False
    """In one part, padded."""

    @property
    def low(self) -> int:
        return max(16, next_power_of_two(self.dim) if self.is_whole else 1 << self.dim.bit_length() - 1)

    @property
    def high(self) -> int:
        left = self.dim - self.low
        return 0 if left <= 0 else max(16, next_power_of_two(left))

    @property
    def padded(self) -> int:
        return self.low + self.high


def next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def tile_for(capability: int, work: Work, key_dim: int, value_dim: int, itemsize: int) -> Tile:
    """``capability`` × 10. Of chips without an entry the big ones since 9.0 take its tiles, all others those of 8.0,
    which fit into 99 KiB."""
    if itemsize > 2:
        return FLOAT32_TILES[work]
    padded = max(Width(key_dim).padded, Width(value_dim).padded)
    width = next(entry for entry in (64, 128, 256) if padded <= entry)
    own = TILES.get((capability, work, width))
    return own or TILES[90 if 90 <= capability < 120 else 80, work, width]
