"""Compiles a model's layers while the engine serves with plain torch, and switches over between two steps.

    start ──▶ every kind's library is in the cache ──────────────────────────▶ load, compare, switch   (a warm start)
          └─▶ export what is missing ─▶ a child compiles, some tens of seconds ─▶ load, compare, switch

One library serves all layers of a kind, however many there are, and any number of tokens. The call goes from Python
into it directly: no guards, no tracing, no Python between its kernels. Whatever goes wrong is said once, with its
reason, and the engine stays with what it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch.export import ExportedProgram

from headway.engine.compiled.comparison import compare, use_forward, use_own_forward
from headway.engine.compiled.layer_call import CompiledLayer, Library
from headway.engine.compiled.layers import DecoderLayer, NotCompilableError, find_layers
from headway.engine.compiled.libraries import Compilation, library_path, start_compiling
from headway.engine.compiled.program import export_layer
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel

logger = logging.getLogger(__name__)

MAX_KINDS = 4
"""More would take minutes to compile; such a model's layers differ in a way that this design does not foresee."""

Progress = Callable[[str], None]


class CompiledStep:
    """The layers of one model. `start` before serving, then `advance` between steps."""

    def __init__(self, loaded: LoadedModel, cache: KvCache, folder: Path) -> None:
        self._loaded = loaded
        self._cache = cache
        self._folder = folder
        self._layers: dict[Path, list[DecoderLayer]] = {}
        """By the library of their kind."""
        self._compilation: Compilation | None = None
        self._started_at = 0.0
        self.is_compiled = False
        """Whether steps run compiled layers now."""
        self.num_compilations = 0
        """Libraries that this process had made."""

    @property
    def is_compiling(self) -> bool:
        return self._compilation is not None

    def start(self, progress: Progress) -> None:
        """Switch to compiled layers at once if they are in the cache; otherwise begin to compile, which returns after
        the export (seconds)."""
        self._started_at = time.monotonic()
        self._try(lambda: self._start(progress))

    def advance(self) -> None:
        """Switch over if the compiler has finished. Costs nothing while it works, and nothing afterwards."""
        if self._compilation is not None and not self._compilation.is_running:
            compilation, self._compilation = self._compilation, None
            self._try(lambda: self._finish(compilation))

    def wait(self) -> None:
        """Until the compiler has finished; for tests and measurements."""
        if self._compilation is not None:
            self._compilation.process.wait()

    def stop(self) -> None:
        """End the compiler, if it is running, and give the layers their own code back."""
        if self._compilation is not None:
            self._compilation.stop()
            self._compilation = None
        self._use_own_forwards()

    def _start(self, progress: Progress) -> None:
        for module in self._loaded.model.modules():
            use_own_forward(module)  # an earlier engine with this model may have left compiled ones
        for layer in find_layers(self._loaded.model):
            path = library_path(self._folder, layer, self._settled_by(layer))
            self._layers.setdefault(path, []).append(layer)
        if len(self._layers) > MAX_KINDS:
            raise NotCompilableError(f"its layers are of {len(self._layers)} kinds, more than {MAX_KINDS}")
        missing = [path for path in self._layers if not path.exists()]
        if not missing:
            self._switch()
            return
        progress("compiling the step in the background (once, about a minute)")
        self._compilation = start_compiling({path: partial(self._export, path) for path in missing})
        self.num_compilations = len(missing)

    def _settled_by(self, layer: DecoderLayer) -> str:
        """What a library depends on beside the layer: the configuration that its code reads, and the pages' shape."""
        pages = self._cache.key_pages[layer.index], self._cache.value_pages[layer.index]
        return f"{self._loaded.model.config.to_json_string()} {[tuple(each.shape[1:]) for each in pages]}"

    def _export(self, path: Path) -> ExportedProgram:
        layer = self._layers[path][0]
        return export_layer(layer, self._cache.key_pages[layer.index], self._cache.value_pages[layer.index])

    def _finish(self, compilation: Compilation) -> None:
        compilation.finish()
        self._switch()

    def _switch(self) -> None:
        libraries = {path: Library(path, self._loaded.device) for path in self._layers}
        compiled = [CompiledLayer(layer, libraries[path]) for path, layers in self._layers.items() for layer in layers]
        compare(self._loaded, compiled, self._cache)
        for layer in compiled:
            use_forward(layer.layer.module, layer)
        self.is_compiled = True
        seconds = time.monotonic() - self._started_at
        logger.info("%d layers run compiled, by %d libraries, after %.1f s", len(compiled), len(libraries), seconds)

    def _try(self, act: Callable[[], None]) -> None:
        """Whatever fails, the engine serves."""
        try:
            act()
        except Exception as exc:  # also what torch, transformers and the model's code may raise
            self._use_own_forwards()
            reason = str(exc).strip() or type(exc).__name__
            logger.warning("steps run in plain torch, slower: %s. Set compile_step to off to silence this.", reason)

    def _use_own_forwards(self) -> None:
        self.is_compiled = False
        for layers in self._layers.values():
            for layer in layers:
                use_own_forward(layer.module)
