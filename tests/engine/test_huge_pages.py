from __future__ import annotations

import mmap
import re
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from headway.engine.huge_pages import ALIGNMENT, HUGE_PAGE, move_to_huge_pages

LARGE = HUGE_PAGE // 4 + 3
"""Floats: together with others, enough for the stretch."""


def make_tensors(large: int) -> list[Tensor]:
    return [
        torch.randn(7, 3),
        torch.randn(large),
        nn.Parameter(torch.randn(5, dtype=torch.float64)),
        torch.randn(4, 6).to(torch.bfloat16).t(),
        torch.arange(11),
        torch.tensor(3.5),
        torch.empty(0, 4),
    ]


@pytest.mark.parametrize("large", [2, LARGE])
def test_values_types_and_shapes_stay(large: int) -> None:
    tensors = make_tensors(large)
    before = [tensor.detach().clone() for tensor in tensors]
    move_to_huge_pages(tensors)
    for tensor, value in zip(tensors, before, strict=True):
        assert torch.equal(tensor, value)
        assert (tensor.dtype, tensor.shape) == (value.dtype, value.shape)


def test_each_has_memory_of_its_own_on_a_line_of_its_own() -> None:
    tensors = make_tensors(LARGE)[:-1]
    move_to_huge_pages(tensors)
    places = sorted((tensor.data_ptr(), tensor.nbytes) for tensor in tensors)
    for (place, nbytes), (next_place, _) in pairwise(places):
        assert place % ALIGNMENT == places[0][0] % ALIGNMENT == 0
        assert place + nbytes <= next_place
    tensors[0].fill_(9)
    assert all((tensor != 9).all() for tensor in tensors[1:4])


def test_what_held_them_before_is_freed() -> None:
    whole = torch.randn(LARGE)
    part = whole[:]
    held = weakref.ref(whole)
    part = nn.Parameter(part)
    storage = weakref.ref(part.untyped_storage())
    move_to_huge_pages([part])
    del whole
    assert held() is None
    assert storage() is None


def test_the_stretch_outlives_the_call() -> None:
    tensor = torch.full((LARGE,), 2.0)
    move_to_huge_pages([tensor])
    view = tensor[10:20]
    del tensor
    torch.randn(LARGE)
    assert torch.equal(view, torch.full((10,), 2.0))


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no huge pages to ask for")
def test_the_stretch_asks_for_huge_pages_in_memory_that_gets_them() -> None:
    """Shared memory takes them from another setting of the system, which is off unless somebody turned it on."""
    tensor = torch.randn(LARGE)
    move_to_huge_pages([tensor])
    access, flags = mapping_of(tensor)
    assert access.endswith("p")
    assert "hg" in flags.split()


def mapping_of(tensor: Tensor) -> tuple[str, str]:
    """Who may use the memory that a tensor lies in, and what was asked for it; proc_pid_smaps(5)."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    for text in maps[1:]:
        begin, end, access = re.match(r"(\w+)-(\w+) (\S+)", text).groups()  # type: ignore[union-attr]
        if int(begin, 16) <= tensor.data_ptr() < int(end, 16):
            return access, text.partition("VmFlags:")[2]
    raise AssertionError("no such mapping")
