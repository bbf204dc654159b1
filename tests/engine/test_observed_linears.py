from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headway.engine.observed_linears import observe_linears

SIZE = 4


class Block(nn.Module):
    """Three layers, and a forward that the test chooses."""

    def __init__(self, forward: Callable[[Block, Tensor], object]) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(SIZE, SIZE) for _ in range(3))
        self._forward = forward

    def forward(self, rows: Tensor) -> object:
        return self._forward(self, rows)


def groups_of(model: nn.Module) -> list[str]:
    """Names of the layers, by group."""
    with torch.inference_mode():
        groups = observe_linears(model, lambda: model(torch.ones(1, 2, SIZE)))
    return [" ".join(observed.name for observed in group) for group in groups]


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda block, x: (block.one(x), block.two(x), block.three(x)), ["one two three"]),
        (lambda block, x: block.three(block.one(x) * block.two(x)), ["one two", "three"]),
        (lambda block, x: (block.two(x), block.one(x.clone())), ["one", "two"]),
        (lambda block, x: (block.one(x), block.two(x.add_(1))), ["one", "two"]),
        (lambda block, x: (block.one(x), block.two(x), block.two(x * 2)), ["one", "two"]),
        (lambda block, x: [(block.one(y), block.two(y)) for y in (x, x * 2)], ["one two"]),
        (lambda block, x: (block.one(input=x), block.two(input=x)), ["one", "two"]),
        (lambda block, x: (block.one(x), nn.functional.linear(x, block.two.weight)), ["one"]),
    ],
    ids=["all", "chain", "equal values", "changed in place", "once and twice", "twice", "by keyword", "not called"],
)
def test_siblings_get_the_same_unchanged_tensor_in_every_call(
    forward: Callable[[Block, Tensor], object], expected: list[str]
) -> None:
    assert groups_of(Block(forward)) == expected


def test_layers_that_something_else_hangs_on_are_left_out() -> None:
    block = Block(lambda block, x: (block.one(x), block.two(x), block.three(x)))
    block.one.register_forward_hook(lambda *_: None)
    nn.utils.parametrizations.weight_norm(block.two)
    assert groups_of(block) == ["three"]


def test_a_layer_that_stands_in_two_places_is_left_out() -> None:
    block = Block(lambda block, x: (block.one(x), block.two(x), block.three(x)))
    block.two = block.three
    assert groups_of(block) == ["one"]


def test_a_subclass_with_a_forward_of_its_own_is_left_out() -> None:
    class Scaled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) * 2

    block = Block(lambda block, x: (block.one(x), block.two(x)))
    block.two = Scaled(SIZE, SIZE)
    assert groups_of(block) == ["one"]


def test_observing_leaves_nothing_behind() -> None:
    block = Block(lambda block, x: block.one(x))
    groups_of(block)
    assert not block.one._forward_pre_hooks
