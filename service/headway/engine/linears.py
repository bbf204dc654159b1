"""Replaces a model's linear layers by faster ones, whatever the architecture, without touching its code.

1. observe — one small forward shows which layers are called, and which share their input (`observed_linears`).
2. rehearse — the same forward with stand-ins that have the new layers' two differences: no ``.weight`` to read, and
   outputs whose rows are not contiguous. If the model's code minds either, everything stays as it is.
3. replace — layer by layer, so that only one of them is ever in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from headway.engine.merged_linear import LinearPart, MergedLinear
from headway.engine.observed_linears import ObservedLinear, observe_linears

BuildLinear = Callable[[Tensor, Tensor | None], nn.Module]
"""A layer from its weight [out_features, in_features] and bias [out_features]; it must not keep the weight itself if
the memory is to be freed."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What became of a model's linear layers."""

    num_linears: int = 0
    """Layers that were replaced."""
    num_merged: int = 0
    """Of them, layers that are now part of a wider one."""
    obstacle: str | None = None
    """Why nothing was replaced."""


def rewrite_linears(
    model: nn.Module, forward: Callable[[], object], build: BuildLinear, min_siblings: int = 1
) -> Rewrite:
    """Merge siblings and make every layer with ``build``. ``forward`` runs the model on a few tokens. Layers with fewer
    siblings, themselves included, than ``min_siblings`` stay as they are."""
    groups = [group for group in observe_linears(model, forward) if len(group) >= min_siblings]
    obstacle = _rehearse(groups, forward)
    if obstacle is not None:
        return Rewrite(obstacle=obstacle)
    rewrite = Rewrite(sum(map(len, groups)), sum(len(group) for group in groups if len(group) > 1))
    while groups:
        _replace(groups.pop(), build)  # taken off the list, so that the plain weights go one by one
    return rewrite


def weight_bytes(model: nn.Module) -> int:
    """What all tensors of a model take, those that packed layers keep for themselves included."""
    tensors = {
        id(value): value
        for module in model.modules()
        for value in (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
        if isinstance(value, Tensor)
    }
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


class _StandIn(nn.Module):
    """Computes what its layer computes, but hides the weight and gives rows that are not contiguous."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.hidden = linear

    def forward(self, input: Tensor) -> Tensor:
        return pad(self.hidden(input), (0, 1))[..., :-1]


@torch.no_grad()
def _rehearse(groups: list[list[ObservedLinear]], forward: Callable[[], object]) -> str | None:
    """What goes wrong with stand-ins, if anything. Leaves the model as it was."""
    everyone = [observed for group in groups for observed in group]
    try:
        for observed in everyone:
            setattr(observed.parent, observed.name, _StandIn(observed.linear))
        forward()
    except (AttributeError, RuntimeError, TypeError) as exc:
        return str(exc)
    finally:
        for observed in everyone:
            setattr(observed.parent, observed.name, observed.linear)
    return None


@torch.no_grad()
def _replace(group: Sequence[ObservedLinear], build: BuildLinear) -> None:
    linears = [observed.linear for observed in group]
    if len(linears) == 1:
        setattr(group[0].parent, group[0].name, build(linears[0].weight, linears[0].bias))
        return
    merged = MergedLinear(
        build(torch.cat([linear.weight for linear in linears]), _joint_bias(linears)),
        [linear.out_features for linear in linears],
    )
    for index, observed in enumerate(group):
        setattr(observed.parent, observed.name, LinearPart(merged, index))


def _joint_bias(linears: Sequence[nn.Linear]) -> Tensor | None:
    """Zeros for those that have none."""
    if all(linear.bias is None for linear in linears):
        return None
    return torch.cat(
        [linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias for linear in linears]
    )
