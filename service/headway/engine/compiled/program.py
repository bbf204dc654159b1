"""A layer as a program of tensors alone, which a compiler can have: every weight and every page is an argument.

`torch.export` runs the layer's own Python once with tensors that have shapes but no values, and writes down the
operators. What Python decided on the way is settled for good; what depends on the number of tokens, sequences, pages or
entries of the page table stays open, or the export fails. Merged linear layers need no care: their Python runs as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from headway.engine.attention import PagedBatch
from headway.engine.compiled.layers import FEWER_TOKENS, DecoderLayer, NotCompilableError, Path, tensor_places

NUM_SEQUENCES, TABLE_WIDTH, NUM_PAGES = 3, 4, 6
"""Of the example; none may be 0 or 1, which export takes for constants."""
TOKENS, SEQUENCES, BOUNDS = Dim("tokens", min=1), Dim("sequences", min=1), Dim("bounds", min=2)
WIDTH, PAGES = Dim("width", min=1), Dim("pages", min=1)
NUM_BATCH_TENSORS = 4
"""slot_mapping, page_table, query_start, context_lens."""


def export_layer(layer: DecoderLayer, key_pages: Tensor, value_pages: Tensor) -> ExportedProgram:
    """The layer as a function of, in this order: the tensors of its arguments, slot_mapping, page_table, query_start,
    context_lens, its key and value pages, its own tensors. Raises ``NotCompilableError``."""
    device = key_pages.device
    arguments = [value_at((layer.args, layer.kwargs), tensor.path) for tensor in layer.inputs]
    weights = [_plain_tensor(place.tensor) for place in tensor_places(layer.module)]
    pages = [
        torch.empty((NUM_PAGES, *each.shape[1:]), dtype=each.dtype, device=device) for each in (key_pages, value_pages)
    ]
    shapes: list[dict[int, Any]] = [dict.fromkeys(tensor.token_dims, TOKENS) for tensor in layer.inputs]
    shapes += [{0: TOKENS}, {0: SEQUENCES, 1: WIDTH}, {0: BOUNDS}, {0: SEQUENCES}, {0: PAGES}, {0: PAGES}]
    shapes += [{} for _ in weights]
    example = (*arguments, *_batch_tensors(device), *pages, *weights)
    try:
        with torch.no_grad():
            program = export(_LayerProgram(layer), example, dynamic_shapes=(tuple(shapes),), strict=False)
    except Exception as exc:  # whatever the model's code and the tracer make of each other
        raise NotCompilableError(f"{type(layer.module).__name__} cannot be exported: {_first_line(exc)}") from exc
    return program


def value_at(root: Any, path: Path) -> Any:
    for key in path:
        root = root[key]
    return root


class _LayerProgram(nn.Module):
    """Puts the tensors that it is given in place of the layer's own, for one call."""

    def __init__(self, layer: DecoderLayer) -> None:
        super().__init__()
        self._hidden = [layer]  # in a list, so that the layer's parameters are not this module's
        self._places = tensor_places(layer.module)

    def forward(self, *tensors: Tensor) -> Any:
        layer = self._hidden[0]
        num_inputs, rest = len(layer.inputs), len(layer.inputs) + NUM_BATCH_TENSORS
        paged = PagedBatch(
            _Same(tensors[rest]),
            _Same(tensors[rest + 1]),
            *tensors[num_inputs:rest],
        )
        arguments = dict(zip((tensor.path for tensor in layer.inputs), tensors, strict=False))
        args, kwargs = _replaced((layer.args, layer.kwargs), (), arguments, paged)
        kept = [place.holder[place.name] for place in self._places]
        try:
            for place, tensor in zip(self._places, tensors[rest + 2 :], strict=True):
                place.holder[place.name] = tensor
            return layer.module.forward(*args, **kwargs)
        finally:
            for place, tensor in zip(self._places, kept, strict=True):
                place.holder[place.name] = tensor


class _Same(Sequence[Tensor]):
    """The same pages for whichever layer asks."""

    def __init__(self, pages: Tensor) -> None:
        self._pages = pages

    def __getitem__(self, index: Any) -> Any:
        return self._pages

    def __len__(self) -> int:
        return 1


def _replaced(value: Any, path: Path, arguments: dict[Path, Tensor], paged: PagedBatch) -> Any:
    """A copy with other tensors and another batch."""
    if path in arguments:
        return arguments[path]
    if isinstance(value, tuple | list):
        return type(value)(_replaced(item, (*path, index), arguments, paged) for index, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _replaced(item, (*path, key), arguments, paged) for key, item in value.items()}
    return paged if hasattr(value, "attend") else value


def _batch_tensors(device: torch.device) -> list[Tensor]:
    return [
        torch.arange(FEWER_TOKENS, device=device),
        torch.zeros((NUM_SEQUENCES, TABLE_WIDTH), dtype=torch.int32, device=device),
        torch.zeros(NUM_SEQUENCES + 1, dtype=torch.int32, device=device),
        torch.zeros(NUM_SEQUENCES, dtype=torch.int32, device=device),
    ]


def _plain_tensor(tensor: Tensor) -> Tensor:
    """oneDNN's blocks have no strides, which export asks for; the operator that reads them only needs a shape here."""
    return tensor if tensor.layout is torch.strided else torch.empty(tensor.shape, dtype=tensor.dtype)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
