"""Replaces what stands between a model's matrix products by the ops of `headway.engine.pointwise`.

Nothing is taken on trust from names. One small forward shows what is called with what (`observed_calls`); what looks
like a norm or a gated MLP is computed both ways on numbers of our own; and only what agrees is replaced. A model that
has norms or gates of another kind keeps its own, and its own speed.

    norm        a module with nothing but one vector of weights, that gives the shape it was given
    gated MLP   down(activation(gate(x)) · up(x)), with gate and up as two layers or as halves of one
    rotary      the function ``apply_rotary_pos_emb`` of the model's own source file, which its attention calls. A
                function cannot be replaced in one model alone: it is wrapped, and the wrapper passes on whatever is not
                inference with bfloat16 or float32 on a CPU
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from types import ModuleType

import torch
from torch import Tensor, nn

from headway.engine.fused_layers import FusedNorm, FusedRotary, GatedMlp
from headway.engine.observed_calls import ObservedCall, Place, observe_calls
from headway.engine.pointwise import ACTIVATIONS, DTYPES, gated_reference, rms_norm_reference, rotary_reference

ROTARY = "apply_rotary_pos_emb"
MAX_EPSILON = 0.1
SAME_FORMULA = 1e-5
"""Largest difference, relative to the largest result, of one formula computed twice in float32."""
SAME_LAYER = 2**-6
"""The same for a whole layer in the model's own type, where a rounding that falls otherwise spreads."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """What became of a model."""

    num_norms: int = 0
    num_gates: int = 0
    num_rotaries: int = 0
    """Source files whose rotary function is replaced."""


def can_fuse(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether there are kernels for it; in plain torch the ops are no faster than what the models do."""
    has_kernels = torch._C._dispatch_has_kernel_for_dispatch_key("headway::rms_norm", "CPU")
    return device.type == "cpu" and dtype in DTYPES and has_kernels


@torch.no_grad()
def fuse(model: nn.Module, dtype: torch.dtype, forward: Callable[[], object]) -> Fusion:
    """``forward`` runs the model on a few tokens; if it fails with the new modules, the model keeps its own."""
    calls = observe_calls(model, forward)
    norms = [(call.place, norm) for call in calls if (norm := _fused_norm(call, dtype))]
    gates = [(call.place, gate) for call in calls if (gate := _fused_gate(call, calls, dtype))]
    if not _put([*norms, *gates], forward):
        return Fusion()
    return Fusion(len(norms), len(gates), sum(fuse_rotary(source, dtype) for source in _sources(model)))


def _put(new: list[tuple[Place, nn.Module]], forward: Callable[[], object]) -> bool:
    old = [(place, place.module) for place, _ in new]
    for place, module in new:
        place.put(module)
    try:
        forward()
    except (AttributeError, RuntimeError, TypeError):  # its code wants more of the module than a call
        for place, module in old:
            place.put(module)
        return False
    return True


def _fused_norm(call: ObservedCall, dtype: torch.dtype) -> FusedNorm | None:
    module = call.module
    weights = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    if len(weights) != 1 or weights[0].shape != call.input.shape[-1:] or call.output.shape != call.input.shape:
        return None
    probe = trial_numbers(*weights[0].shape)
    epsilons = {value for value in vars(module).values() if isinstance(value, float) and 0 < value < MAX_EPSILON}
    for epsilon, weight in product(epsilons, (weights[0].float(), 1 + weights[0].float())):
        if agrees(module(probe), rms_norm_reference(probe, weight, epsilon, False), SAME_FORMULA):
            return _nearest_norm(module, weight, epsilon, probe.to(dtype))
    return None


def _nearest_norm(module: nn.Module, weight: Tensor, epsilon: float, probe: Tensor) -> FusedNorm:
    """Of the two ways to round, the one by which fewer elements differ."""
    fused = [FusedNorm(weight, epsilon, rounds_first) for rounds_first in (False, True)]
    return min(fused, key=lambda norm: int((norm(probe) != module(probe)).sum()))


def _fused_gate(call: ObservedCall, calls: list[ObservedCall], dtype: torch.dtype) -> GatedMlp | None:
    inner = [other for other in calls if other.place.parent is call.module]
    layers = [other for other in inner if other.input is call.input]
    downs = [other for other in inner if other.output is call.output and other not in layers]
    activations = [other for other in inner if other not in layers and other not in downs]
    if len(inner) not in (3, 4) or len(downs) != 1 or len(activations) != 1:
        return None
    name = _activation_name(activations[0].module)
    gates = sorted(layers, key=lambda layer: layer.output is not activations[0].input)
    if name is None:
        return None
    fused = GatedMlp(gates[0].module, gates[1].module if len(gates) > 1 else None, downs[0].module, name)
    probe = trial_numbers(*call.input.shape[-1:]).to(dtype)
    try:
        return fused if agrees(call.module(probe), fused(probe), SAME_LAYER) else None
    except RuntimeError:  # shapes that do not fit: no gate after all
        return None


def _activation_name(module: nn.Module) -> str | None:
    if any(True for _ in module.parameters()):
        return None
    probe = torch.linspace(-12, 12, 4001)
    ones = torch.ones_like(probe)
    for number, name in enumerate(ACTIVATIONS):
        if agrees(module(probe), gated_reference(probe, ones, number), SAME_FORMULA):
            return name
    return None


def _sources(model: nn.Module) -> Iterator[ModuleType]:
    """The files that the model's classes come from, where they have a rotary function."""
    names = {type(module).__module__ for module in model.modules()}
    return (sys.modules[name] for name in sorted(names) if hasattr(sys.modules[name], ROTARY))


def fuse_rotary(source: ModuleType, dtype: torch.dtype) -> bool:
    """Whether the file's rotary function is replaced; it was, or is now if it computes the formula."""
    original = getattr(source, ROTARY, None)
    if original is None or isinstance(original, FusedRotary):
        return original is not None
    query, key, cos, sin = (
        trial_numbers(*shape).to(dtype) for shape in ((1, 4, 3, 16), (1, 2, 3, 16), (1, 3, 16), (1, 3, 16))
    )
    try:
        theirs = original(query, key, cos, sin)
    except (RuntimeError, TypeError):  # another function of the same name, or none
        return False
    ours = [heads.transpose(1, 2) for heads in rotary_reference(query, key, cos, sin)]
    if not all(agrees(one, other, SAME_FORMULA) for one, other in zip(theirs, ours, strict=True)):
        return False
    setattr(source, ROTARY, FusedRotary(original))
    return True


def trial_numbers(*shape: int) -> Tensor:
    """Numbers of all sizes that activations have; five rows unless the shape says more."""
    generator = torch.Generator().manual_seed(0)
    shape = shape if len(shape) > 1 else (1, 5, *shape)
    return torch.randn(shape, generator=generator) * torch.rand(shape, generator=generator).exp2().pow(4)


def agrees(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    difference = (one.double() - other.double()).abs().max()
    return bool(difference <= tolerance * other.double().abs().max())
