"""A compiled layer in the place of its layer's forward: the same arguments in, the same results out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import treespec_loads

from headway.engine.attention import PagedBatch
from headway.engine.compiled.layers import DecoderLayer, tensor_places
from headway.engine.compiled.program import value_at
from headway.engine.native.build import BuildFailedError

Run = Callable[[list[Tensor]], list[Tensor]]
CPU_INDEX = -1


class CompiledLayer:
    """Calls a kind's library with what is this layer's own."""

    def __init__(self, layer: DecoderLayer, library: Library) -> None:
        self.layer = layer
        self._index = layer.index
        self._run = library.run
        self._results = library.results
        self._weights = [place.tensor for place in tensor_places(layer.module)]
        self._paths = [tensor.path for tensor in layer.inputs]

    def __call__(self, *args: Any, paged: PagedBatch, **kwargs: Any) -> Any:
        root = (args, kwargs)
        inputs = [value_at(root, path) for path in self._paths]
        inputs += (
            paged.slot_mapping,
            paged.page_table,
            paged.query_start,
            paged.context_lens,
            paged.key_pages[self._index],
            paged.value_pages[self._index],
            *self._weights,
        )
        return self._results(self._run(inputs))


class Library:
    """A loaded library. ``boxed_run`` checks nothing: what it is given must fit."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """Removes a file that is none, so that the next start makes it anew, and raises ``BuildFailedError``."""
        index = CPU_INDEX if device.index is None else device.index
        try:
            loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, index)
        except RuntimeError as exc:
            path.unlink()
            raise BuildFailedError(f"{path} cannot be loaded: {str(exc).splitlines()[0]}") from exc
        self.run: Run = loader.boxed_run
        _, results = loader.get_call_spec()
        self._structure = treespec_loads(results)

    def results(self, tensors: Sequence[Tensor]) -> Any:
        """In the structure in which the layer's code gives them."""
        if self._structure.is_leaf():
            return tensors[0]
        return self._structure.unflatten(tensors)
