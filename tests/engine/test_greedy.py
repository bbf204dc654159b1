"""The likeliest token of each row: the same from every instruction set as from plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.engine.greedy import NO_TOKEN, greedy, greedy_reference

DTYPES = [torch.bfloat16, torch.float32]
WIDTHS = [1, 5, 16, 17, 31, 64, 49152]

pytestmark = pytest.mark.usefixtures("level")


def make(width: int, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(width)
    return torch.randn(6, width).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_the_first_of_the_largest(width: int, dtype: torch.dtype) -> None:
    logits = make(width, dtype)
    expected = [row.index(max(row)) for row in logits.tolist()]
    assert greedy(logits).tolist() == expected
    assert greedy_reference(logits).tolist() == expected


@pytest.mark.parametrize("width", WIDTHS)
def test_of_equals_it_is_the_first(width: int) -> None:
    assert greedy(torch.full((2, width), -3.0)).tolist() == [0, 0]
    logits = torch.zeros(1, width)
    logits[0, width // 2 :] = 1.0
    assert greedy(logits).tolist() == [width // 2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_that_says_nothing_has_none(width: int, dtype: torch.dtype) -> None:
    logits = make(width, dtype)
    logits[0, width - 1] = torch.nan
    logits[1, width // 2] = torch.inf
    logits[2] = -torch.inf
    tokens = greedy(logits).tolist()
    assert tokens[:3] == [NO_TOKEN] * 3
    assert NO_TOKEN not in tokens[3:]
    assert tokens == greedy_reference(logits).tolist()


def test_tokens_may_be_ruled_out() -> None:
    logits = make(64, torch.float32)
    logits[:, 1:] = -torch.inf
    assert greedy(logits).tolist() == [0] * 6


def test_rows_may_lie_apart_and_be_none() -> None:
    logits = make(64, torch.float32)
    assert greedy(logits[::2, :50]).tolist() == greedy_reference(logits[::2, :50]).tolist()
    assert greedy(logits[:0]).tolist() == []


def test_other_types_are_served_by_plain_torch() -> None:
    logits = make(64, torch.float32)
    assert greedy(logits.double()).tolist() == greedy(logits).tolist()
