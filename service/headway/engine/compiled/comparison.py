"""Whether compiled layers give what the model's own code gives: tried on a small ragged batch before they are trusted.

Every layer gets the eager layer's input, so that rounding does not add up from layer to layer, and pages of its own
full of noise. Compiled code rounds less often than eager code (what is fused stays in float32), so results agree up to
a few units of the type's last place, measured against the whole: |compiled - eager| / |eager|, Euclidean norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from headway.engine.attention import PagedBatch
from headway.engine.compiled.layer_call import CompiledLayer
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel

TOLERANCES = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float32: 1e-4, torch.float64: 1e-5}
"""Norms compute in float32 whatever the model's type is, hence the last."""
BATCHES = (((0, 6), (5, 4), (11, 1), (0, 1)), ((7, 1),))
"""Sequences as (tokens before, new tokens). The second: one token, alone."""


class DifferentResultsError(Exception):
    """A compiled layer and its eager one disagree."""


@torch.inference_mode()
def compare(loaded: LoadedModel, layers: Sequence[CompiledLayer], cache: KvCache) -> None:
    """Raises ``DifferentResultsError``, and whatever the layers raise."""
    for sequences in BATCHES:
        eager = _batch(sequences, loaded, cache)
        compiled = replace(eager, key_pages=_clones(eager.key_pages), value_pages=_clones(eager.value_pages))
        with ExitStack() as undo:
            for layer in layers:
                use_forward(layer.layer.module, _Both(layer, compiled, TOLERANCES[loaded.dtype]))
                undo.callback(use_own_forward, layer.layer.module)
            positions = [position for old, new in sequences for position in range(old, old + new)]
            _run(loaded, torch.tensor(positions, device=loaded.device)[None], eager)


def use_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """An attribute of the object, which hides the class's method; the module stays what it is otherwise."""
    vars(module)["forward"] = forward


def use_own_forward(module: nn.Module) -> None:
    """Take away what `use_forward` has put there, if it has."""
    if isinstance(vars(module).get("forward"), CompiledLayer | _Both):
        del vars(module)["forward"]


class _Both:
    """A forward that runs both and goes on with the eager results."""

    def __init__(self, compiled: CompiledLayer, paged: PagedBatch, tolerance: float) -> None:
        self._compiled = compiled
        self._eager = compiled.layer.module.forward
        self._paged = paged
        self._tolerance = tolerance

    def __call__(self, *args: Any, paged: PagedBatch, **kwargs: Any) -> Any:
        theirs = self._compiled(*args, paged=self._paged, **kwargs)
        ours = self._eager(*args, paged=paged, **kwargs)
        index = self._compiled.layer.index
        pairs = [*zip(tree_leaves(theirs), tree_leaves(ours), strict=True)]
        pairs += [(self._paged.key_pages[index], paged.key_pages[index])]
        pairs += [(self._paged.value_pages[index], paged.value_pages[index])]
        for compiled, eager in pairs:
            if isinstance(eager, Tensor):
                self._check(compiled, eager)
        return ours

    def _check(self, compiled: Tensor, eager: Tensor) -> None:
        error = torch.linalg.vector_norm(compiled.double() - eager.double()) / torch.linalg.vector_norm(eager.double())
        if not error <= self._tolerance:
            layer = self._compiled.layer
            raise DifferentResultsError(
                f"layer {layer.index} ({type(layer.module).__name__}) gives other values when it is compiled: "
                f"relative error {error:.2g}, expected at most {self._tolerance:.2g}"
            )


def _batch(sequences: Sequence[tuple[int, int]], loaded: LoadedModel, cache: KvCache) -> PagedBatch:
    """Every sequence has pages of its own, enough for its tokens, filled with noise that is the same every time."""
    width = max(-(-(old + new) // cache.page_size) for old, new in sequences)
    device = loaded.device
    table = torch.arange(len(sequences) * width, dtype=torch.int32, device=device).reshape(-1, width)
    slots = [
        row * width * cache.page_size + position
        for row, (old, new) in enumerate(sequences)
        for position in range(old, old + new)
    ]
    ends = torch.tensor([0, *(new for _, new in sequences)], device=device).cumsum(0)
    chance = torch.Generator(device).manual_seed(0)
    return PagedBatch(
        key_pages=[_noise(table.numel(), pages, chance) for pages in cache.key_pages],
        value_pages=[_noise(table.numel(), pages, chance) for pages in cache.value_pages],
        slot_mapping=torch.tensor(slots, device=device),
        page_table=table,
        query_start=ends.to(torch.int32),
        context_lens=torch.tensor([old + new for old, new in sequences], dtype=torch.int32, device=device),
    )


def _noise(num_pages: int, like: Tensor, chance: torch.Generator) -> Tensor:
    shape = (num_pages, *like.shape[1:])
    return torch.randn(shape, dtype=torch.float32, device=like.device, generator=chance).to(like.dtype)


def _clones(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def _run(loaded: LoadedModel, positions: Tensor, paged: PagedBatch) -> None:
    tokens = (positions * 7919 + 13) % loaded.vocab_size
    keywords: dict[str, Any] = {"use_cache": False, "logits_to_keep": 1, "paged": paged}
    loaded.model(input_ids=tokens, position_ids=positions, **keywords)
