"""Weights in huge pages of the operating system, so that reading all of them costs few look-ups of addresses.

A step reads every weight once. In pages of 4 KiB, the CPU must look up an address and start its read-ahead anew every
64 lines; in pages of 2 MiB one thread reads up to twice as fast. Linux gives huge pages to memory that asks for them
(madvise(2), MADV_HUGEPAGE, where transparent_hugepage is ``madvise`` or ``always``), but only whole ones: so all
weights go end to end into one stretch instead of each into memory of its own. The stretch is private: mmap in Python
gives shared memory unless told otherwise, which follows a setting of its own (shmem_enabled, as a rule ``never``).
Where there are no huge pages, it is memory like any other.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

ALIGNMENT = 64
"""Bytes: a line of the cache, and the widest vector."""
HUGE_PAGE = 2 << 20


def move_to_huge_pages(tensors: Sequence[Tensor]) -> None:
    """Gives each tensor new memory, rows in one piece; what held it before is free as soon as nothing else uses it.
    Needs no more memory than what is moved and the largest tensor: the stretch takes memory only where it is written.
    """
    tensors = [tensor for tensor in tensors if tensor.numel() > 0]
    size = sum(_aligned(tensor.nbytes) for tensor in tensors)
    if size < HUGE_PAGE:
        for tensor in tensors:
            tensor.data = tensor.data.clone()
        return
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # stays as long as a tensor lies in it
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    offset = 0
    for tensor in tensors:
        moved = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset).view(tensor.shape)
        tensor.data = moved.copy_(tensor.data)
        offset += _aligned(tensor.nbytes)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
