from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headway.engine.merged_linear import LinearPart, MergedLinear

SIZES = [4, 2, 3]


class CountingLinear(nn.Linear):
    """Counts its calls."""

    num_calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.num_calls += 1
        return super().forward(input)


@pytest.fixture
def whole() -> CountingLinear:
    return CountingLinear(5, sum(SIZES), dtype=torch.float64)


@pytest.fixture
def parts(whole: CountingLinear) -> list[LinearPart]:
    merged = MergedLinear(whole, SIZES)
    return [LinearPart(merged, index) for index in range(len(SIZES))]


def expected(whole: CountingLinear, index: int, rows: Tensor) -> Tensor:
    return nn.functional.linear(rows, whole.weight, whole.bias).split(SIZES, dim=-1)[index]


def make_rows() -> Tensor:
    return torch.randn(1, 6, 5, dtype=torch.float64)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_parts_with_one_input_are_computed_once(
    whole: CountingLinear, parts: list[LinearPart], order: tuple[int, ...]
) -> None:
    for num_calls in (1, 2):
        rows = make_rows()
        for index in order:
            assert torch.equal(parts[index](rows), expected(whole, index, rows))
        assert whole.num_calls == num_calls


def test_a_part_called_alone_gives_its_own_columns(whole: CountingLinear, parts: list[LinearPart]) -> None:
    for _ in range(3):
        rows = make_rows()
        assert torch.equal(parts[1](rows), expected(whole, 1, rows))


def test_a_part_called_with_another_tensor_computes_for_that_one(
    whole: CountingLinear, parts: list[LinearPart]
) -> None:
    first, second = make_rows(), make_rows()
    assert torch.equal(parts[0](first), expected(whole, 0, first))
    assert torch.equal(parts[1](second), expected(whole, 1, second))
    assert torch.equal(parts[2](first), expected(whole, 2, first))
    assert torch.equal(parts[0](second), expected(whole, 0, second))


def test_an_input_that_changed_in_place_is_computed_again(whole: CountingLinear, parts: list[LinearPart]) -> None:
    """As a static input buffer does from step to step."""
    rows = make_rows()
    for _ in range(2):
        for index, part in enumerate(parts):
            assert torch.equal(part(rows), expected(whole, index, rows))
        rows.add_(1.0)
    assert torch.equal(parts[0](rows), expected(whole, 0, rows))
    rows.add_(1.0)
    assert torch.equal(parts[0](rows), expected(whole, 0, rows))


def test_parts_do_not_share_memory_that_a_model_may_change(whole: CountingLinear, parts: list[LinearPart]) -> None:
    rows = make_rows()
    with torch.inference_mode():
        parts[0](rows).zero_()
        assert torch.equal(parts[1](rows), expected(whole, 1, rows))


def test_nothing_is_kept_once_every_part_has_its_columns(parts: list[LinearPart]) -> None:
    rows = make_rows()
    for part in parts:
        part(rows)
    assert parts[0].merged._computed.input is None
    assert not any(isinstance(left, Tensor) for left in parts[0].merged._computed.columns)
