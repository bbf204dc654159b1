"""Which linear layers a model calls, and which of them get the same input: seen in one small forward, not guessed.

Names differ from family to family (q_proj, wq, query, in_proj), what happens does not. Layers of one parent are
siblings if every call of the one has a call of the other with the very same tensor, unchanged in between.
Left out, and so never touched: layers that this forward does not call (experts that no token chose), subclasses with a
forward of their own, layers with hooks, and layers that stand in two places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class ObservedLinear:
    """A linear layer, where it stands, and what it was called with."""

    parent: nn.Module
    name: str
    linear: nn.Linear
    inputs: list[Tensor | None] = field(default_factory=list)
    """Kept while observing, so that no two have the same identity. None: it was given by keyword."""
    versions: list[int] = field(default_factory=list)
    """How often each input had been changed in place."""

    def see(self, module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        """A forward pre-hook."""
        self.inputs.append(arguments[0] if arguments else None)
        self.versions.append(arguments[0]._version if arguments else 0)

    @property
    def sibling_key(self) -> tuple[object, ...]:
        """Equal for siblings."""
        if any(tensor is None for tensor in self.inputs):
            return (id(self),)
        return (id(self.parent), *map(id, self.inputs), *self.versions)


def observe_linears(model: nn.Module, forward: Callable[[], object]) -> list[list[ObservedLinear]]:
    """Groups of siblings; a layer without siblings is a group of its own. ``forward`` must not enter inference mode,
    whose tensors do not count their changes."""
    seen = _candidates(model)
    with torch.inference_mode(False), torch.no_grad(), _hooks(seen):
        forward()
    groups: dict[tuple[object, ...], list[ObservedLinear]] = {}
    for observed in seen:
        if observed.inputs:
            groups.setdefault(observed.sibling_key, []).append(observed)
    for observed in seen:
        observed.inputs.clear()
    return list(groups.values())


def _candidates(model: nn.Module) -> list[ObservedLinear]:
    found = [
        ObservedLinear(parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if type(child) is nn.Linear and not _is_changed(child)
    ]
    num_places = Counter(id(observed.linear) for observed in found)
    return [observed for observed in found if num_places[id(observed.linear)] == 1]


def _is_changed(linear: nn.Linear) -> bool:
    """Whether something else hangs on it: a hook, or a forward or a weight that another library put there."""
    return bool(
        linear._forward_hooks
        or linear._forward_pre_hooks
        or "forward" in vars(linear)
        or "weight" not in linear._parameters
    )


@contextmanager
def _hooks(seen: list[ObservedLinear]) -> Iterator[None]:
    with ExitStack() as stack:
        for observed in seen:
            stack.callback(observed.linear.register_forward_pre_hook(observed.see).remove)
        yield
