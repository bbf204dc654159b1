"""The search for the end of a nucleus, row by row, beside plain torch's: to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.engine.nucleus import settle_reference
from headway.engine.triton_kernels import nucleus
from headway.engine.triton_kernels.nucleus import settle_triton

ONE = 2**40


@pytest.fixture(autouse=True)
def small_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that rows have several."""
    monkeypatch.setattr(nucleus, "BLOCK", 64)


def draw_weights(num_rows: int, vocab_size: int, num_levels: int) -> Tensor:
    """With ties and zeros if there are few levels."""
    generator = torch.Generator().manual_seed(vocab_size + num_levels % 1000)
    weights = torch.randint(0, num_levels, (num_rows, vocab_size), generator=generator) * (ONE // num_levels)
    weights[:, vocab_size // 3] = ONE
    return weights


@pytest.mark.parametrize("num_levels", [1, 2, 30, ONE])
@pytest.mark.parametrize("vocab_size", [1, 64, 200])
def test_rows_that_are_not_settled_are_searched(vocab_size: int, num_levels: int) -> None:
    top_k = torch.tensor([vocab_size, 1, 3, vocab_size - 1, vocab_size, vocab_size]).clamp(1, vocab_size)
    top_p = torch.tensor([0.9, 0.5, 1.0, 0.9999, 1.0, 0.01], dtype=torch.float64)
    weights = draw_weights(len(top_k), vocab_size, num_levels)
    least, is_settled = torch.full((len(top_k),), -1), torch.zeros(len(top_k), dtype=torch.bool)
    found = settle_triton(least, is_settled, weights, top_k, top_p)
    expected = settle_reference(least, is_settled, weights, top_k, top_p)
    for row in range(len(top_k)):
        kept = [(weights[row] >= result[row]).tolist() for result in (found, expected)]
        assert kept[0] == kept[1], row


def test_rows_that_are_settled_stay_as_they_are() -> None:
    weights = draw_weights(3, 100, ONE)
    least, is_settled = torch.tensor([7, 8, 9]), torch.tensor([True, False, True])
    found = settle_triton(least, is_settled, weights, torch.full((3,), 5), torch.ones(3, dtype=torch.float64))
    assert (found[0], found[2]) == (7, 9)
    assert found[1] == weights[1].sort(descending=True).values[4]
