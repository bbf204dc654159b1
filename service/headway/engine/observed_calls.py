"""What a model calls with what in one small forward: the facts that a rewrite of its modules goes by.

Only plain calls are kept: one tensor in, one tensor out, of a module that stands in one place and was called once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module stands: as ``name`` in ``parent``."""

    parent: nn.Module
    name: str

    @property
    def module(self) -> nn.Module:
        module = self.parent._modules[self.name]
        assert module is not None
        return module

    def put(self, module: nn.Module) -> None:
        self.parent._modules[self.name] = module


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """One call of the module in ``place``. The tensors are kept, so that no two have the same identity."""

    place: Place
    input: Tensor
    output: Tensor

    @property
    def module(self) -> nn.Module:
        return self.place.module


def observe_calls(model: nn.Module, forward: Callable[[], object]) -> list[ObservedCall]:
    """In the order in which the calls ended."""
    calls: list[ObservedCall] = []
    with torch.no_grad(), ExitStack() as stack:
        for place in _places(model):
            stack.callback(place.module.register_forward_hook(_writer(place, calls), with_kwargs=True).remove)
        forward()
    num_calls = Counter(call.module for call in calls)
    return [call for call in calls if num_calls[call.module] == 1]


def _writer(place: Place, calls: list[ObservedCall]) -> Callable[..., None]:
    def write(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if len(arguments) == 1 and not keywords and isinstance(arguments[0], Tensor) and isinstance(output, Tensor):
            calls.append(ObservedCall(place, arguments[0], output))

    return write


def _places(model: nn.Module) -> list[Place]:
    places = [Place(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child]
    num_places = Counter(place.module for place in places)
    return [place for place in places if num_places[place.module] == 1]
