"""Which modules are a model's layers, how they are called, and which are alike: seen in two forwards, not guessed.

A layer is an entry of a module list with exactly one call for attention inside, its own or its children's. What differs
between a forward of 5 tokens and one of 7 is what depends on the number of tokens; all else is a constant. Layers whose
code, plain attributes, tensor shapes and attention rules agree are of one kind and can share one compilation:
their tensors, and the pages that they write to, are arguments of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import MappingKey, SequenceKey, tree_flatten_with_path

from headway.engine.attention import LayerCall
from headway.engine.load import run_tokens

FEWER_TOKENS, MORE_TOKENS = 5, 7
PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
BOOKKEEPING = frozenset(vars(nn.Module()))
"""Attributes of every module."""
NAMES_OF_ONE_LAYER = {"layer_idx"}
"""Attributes that tell layers of one kind apart. Where they change what a layer computes, the comparison with the eager
layer finds it."""

Path = tuple[Any, ...]


class NotCompilableError(Exception):
    """The model cannot be compiled by layers, and why."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """A tensor among the arguments of a layer."""

    path: Path
    """Keys that lead to it in (args, kwargs)."""
    token_dims: tuple[int, ...]
    """Dimensions as long as the step has tokens."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a module keeps a tensor: its parameters, buffers or plain attributes."""

    holder: dict[str, Any]
    name: str

    @property
    def tensor(self) -> Tensor:
        tensor: Tensor = self.holder[self.name]
        return tensor.detach()


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One layer as it was seen."""

    index: int
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[TensorInput, ...]
    kind: str
    """Equal for layers that compute the same from their arguments and tensors."""


def tensor_places(module: nn.Module) -> list[TensorPlace]:
    """All tensors of a module and its children, in an order that is the same for modules of one kind."""
    return [
        TensorPlace(holder, name)
        for child in module.modules()
        for holder in (child._parameters, child._buffers, vars(child))
        for name, value in holder.items()
        if isinstance(value, Tensor)
    ]


@torch.no_grad()
def find_layers(model: nn.Module) -> list[DecoderLayer]:
    """In the order in which they attend. Raises ``NotCompilableError``."""
    fewer, more = (_observe(model, num_tokens) for num_tokens in (FEWER_TOKENS, MORE_TOKENS))
    if [id(seen.module) for seen in fewer] != [id(seen.module) for seen in more]:
        raise NotCompilableError("its layers depend on the number of tokens")
    return [_layer(*pair) for pair in zip(fewer, more, strict=True)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One call of a layer, and what its attention was asked for."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attention: LayerCall


@dataclass(slots=True)
class _Watch:
    """Answers attention with zeros and writes down which layer asked."""

    active: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    """Entries of module lists whose forward is running, the outermost first."""
    seen: list[_Seen] = field(default_factory=list)

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.active.append((module, args, kwargs))

    def leave(self, *_: object) -> None:
        self.active.pop()

    def attend(self, call: LayerCall) -> Tensor:
        if not self.active:
            raise NotCompilableError("it attends outside of a list of layers")
        self.seen.append(_Seen(*self.active[0], call))
        return call.query.new_zeros((*call.query.shape[:2], call.value.shape[2]))


def _observe(model: nn.Module, num_tokens: int) -> list[_Seen]:
    watch = _Watch()
    with _hooks(model, watch):
        run_tokens(model, num_tokens, watch)
    if len({id(seen.module) for seen in watch.seen}) < len(watch.seen):
        raise NotCompilableError("a layer attends more than once")
    return watch.seen


@contextmanager
def _hooks(model: nn.Module, watch: _Watch) -> Iterator[None]:
    with ExitStack() as stack:
        for parent in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
            for child in parent:
                stack.callback(child.register_forward_pre_hook(watch.enter, with_kwargs=True).remove)
                stack.callback(child.register_forward_hook(watch.leave, always_call=True).remove)
        yield


def _layer(fewer: _Seen, more: _Seen) -> DecoderLayer:
    inputs, constants = _arguments(fewer, more)
    attention = fewer.attention
    rules = (attention.scale, attention.sliding_window, attention.softcap, attention.sinks is not None)
    kind = "\n".join([repr(constants), repr(inputs), repr(rules), *_describe(fewer.module)])
    return DecoderLayer(attention.layer, fewer.module, fewer.args, fewer.kwargs, tuple(inputs), kind)


def _arguments(fewer: _Seen, more: _Seen) -> tuple[list[TensorInput], list[tuple[Path, object]]]:
    """The tensors, and the constants by their places."""
    leaves, structure = tree_flatten_with_path((fewer.args, fewer.kwargs))
    others, other_structure = tree_flatten_with_path((more.args, more.kwargs))
    if structure != other_structure:
        raise NotCompilableError("its layers' arguments depend on the number of tokens")
    inputs: list[TensorInput] = []
    constants: list[tuple[Path, object]] = []
    for (keys, leaf), (_, other) in zip(leaves, others, strict=True):
        path = _path(keys)
        if isinstance(leaf, Tensor):
            inputs.append(TensorInput(path, _token_dims(leaf, other)))
        elif isinstance(leaf, PLAIN) and leaf == other:
            constants.append((path, leaf))
        elif not isinstance(leaf, _Watch):
            raise NotCompilableError(f"its layers take a {type(leaf).__name__}")
    return inputs, constants


def _path(keys: tuple[Any, ...]) -> Path:
    path = tuple(getattr(key, "idx", getattr(key, "key", None)) for key in keys)
    if not all(isinstance(key, SequenceKey | MappingKey) for key in keys):
        raise NotCompilableError("its layers take tensors inside of objects")
    return path


def _token_dims(fewer: Tensor, more: Tensor) -> tuple[int, ...]:
    dims = tuple(dim for dim in range(fewer.ndim) if fewer.shape[dim] != more.shape[dim])
    if any((fewer.shape[dim], more.shape[dim]) != (FEWER_TOKENS, MORE_TOKENS) for dim in dims):
        raise NotCompilableError(f"its layers take a tensor of shape {tuple(fewer.shape)} for {FEWER_TOKENS} tokens")
    return dims


def _describe(layer: nn.Module) -> Iterator[str]:
    for name, module in layer.named_modules():
        yield f"{name}: {type(module).__module__}.{type(module).__qualname__}"
        for key, value in sorted(vars(module).items()):
            if key not in BOOKKEEPING | NAMES_OF_ONE_LAYER and not isinstance(value, Tensor):
                yield f"  {key} = {_plain(value)}"
    for place in tensor_places(layer):
        tensor = place.tensor
        strides = tensor.stride() if tensor.layout is torch.strided else tensor.layout
        yield f"{place.name}: {tuple(tensor.shape)} {strides} {tensor.dtype} {tensor.device}"


def _plain(value: object) -> str:
    """Enough to tell two values apart if a layer computes with them."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return getattr(value, "__qualname__", type(value).__qualname__)
