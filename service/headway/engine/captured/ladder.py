"""Which decodes are captured: a ladder of batch sizes, for some widths of the page table.

A captured step is for one shape, and smaller ones are padded to it. Batch sizes may stand apart: a decode reads all
weights whatever its size, so a few rows that nobody asked for cost next to nothing among few, and are at most an eighth
beyond 64. Widths stand further apart still. The width bounds into how many splits the attention kernel cuts a
context (`headway.engine.triton_kernels.splits`), not what it reads: that is said by the lengths, on the device.

    up to 8,192 keys   a wider table changes nothing for short contexts: splits are never shorter than 256 keys, so the
                       splits that are too many find nothing to do, within one round of the machine
    beyond             the kernel cuts at least every 8,192 keys. A table for 131,072 keys makes 16 programs of each
                       (sequence, key head), 15 of them empty for short contexts; with 64 sequences of 8 key heads 7,680
                       empty programs per layer, some 10 µs. With each width four times the last, most of a step's
                       programs can be empty, but no more than three in four of them because of the padding

vLLM and SGLang capture one width, the longest, and so bound splits by a setting (vLLM: 32 with FlashAttention 3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

MIN_BATCH_SIZE = 2
"""torch.compile takes a size of one for a constant, and would compile it apart."""
MAX_BATCH_SIZE = 512
"""Beyond, a step takes long enough on the device to be launched meanwhile."""
FINE = 8
"""Rows between batch sizes, at least: what matrix instructions take at a time."""
COARSE = 8
"""Beyond ``FINE * COARSE`` rows the next batch size is at most this part larger."""
NARROW = 8192
"""Keys of the first width: the longest split of the attention kernel."""
WIDER = 4
"""By how much the next width is larger."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What one captured step takes at most."""

    batch_size: int
    num_columns: int
    """Of the page table."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The shapes for ``max_num_seqs`` sequences of at most ``max_model_len`` tokens."""

    max_num_seqs: int
    max_model_len: int
    page_size: int

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Growing. The last one is `max_num_seqs`, or what is the most of all."""
        top = min(max(self.max_num_seqs, MIN_BATCH_SIZE), MAX_BATCH_SIZE)
        sizes = []
        size = MIN_BATCH_SIZE
        while size < top:
            sizes.append(size)
            size += size if size < FINE else max(FINE, _power_of_two_below(size) // COARSE)
        return (*sizes, top)

    @property
    def widths(self) -> tuple[int, ...]:
        """In columns, growing. The last one holds `max_model_len`."""
        widths = []
        num_keys = NARROW
        while num_keys < self.max_model_len:
            widths.append(num_keys)
            num_keys *= WIDER
        return tuple(-(-keys // self.page_size) for keys in (*widths, self.max_model_len))

    @property
    def shapes(self) -> tuple[DecodeShape, ...]:
        """In the order of capture: short contexts first, since memory may not suffice for all; and the largest batch
        first, since smaller ones find room in the memory that it took."""
        return tuple(DecodeShape(size, width) for width in self.widths for size in reversed(self.batch_sizes))


def best_fit(captured: Collection[DecodeShape], batch_size: int, num_columns: int) -> DecodeShape | None:
    """The narrowest that holds the step, and of those the one with the fewest rows."""
    fitting = [shape for shape in captured if shape.batch_size >= batch_size and shape.num_columns >= num_columns]
    return min(fitting, key=lambda shape: (shape.num_columns, shape.batch_size), default=None)


def _power_of_two_below(number: int) -> int:
    """The largest that is not above it."""
    return 1 << (number.bit_length() - 1)
