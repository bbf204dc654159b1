"""The memory that holds keys and values, in pages, and how many pages fit.

    key_pages[layer]     [num_pages, page_size, num_kv_heads, key_dim]
    value_pages[layer]   [num_pages, page_size, num_kv_heads, value_dim]

      page 0           page 1           page 2
    ├──┬──┬──┬── … ──┼──┬──┬──┬── … ──┼──┬──── …     one page id names the same place in every layer,
     token slots                                     so a sequence has one page table, not one per layer

The last one is the scratch page. It belongs to nobody, `num_pages` does not count it, and what rows write that only
fill up a step goes there.

The pages are left as the allocator gives them: nothing reads a slot before it is written, and on a CPU the system
commits the memory only where pages are used. Which page belongs to whom is not known here (`core.pages`), nor where the
memory for them comes from (`headway.engine.page_memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from headway.core.errors import SettingError
from headway.engine.config import EngineConfig
from headway.engine.load import LoadedModel
from headway.engine.page_memory import PageMemory
from headway.engine.page_scales import EIGHT_BITS, Scales


class KvCache:
    """Pages for all layers of ``loaded``, on its device; in its type, or in eight bits if there are ``scales`` for its
    layers."""

    def __init__(
        self, loaded: LoadedModel, num_pages: int, page_size: int, scales: Sequence[Scales] | None = None
    ) -> None:
        self.num_pages = num_pages
        self.scratch_page = num_pages
        self.page_size = page_size
        self.max_model_len = min(loaded.max_model_len, num_pages * page_size)
        """The longest sequence that the model takes and the pages hold."""
        self.scales = scales
        self.key_pages: list[Tensor] = []
        self.value_pages: list[Tensor] = []
        dtype = loaded.dtype if scales is None else EIGHT_BITS
        for layer in loaded.layers:
            shape = (num_pages + 1, page_size, layer.num_kv_heads)
            self.key_pages.append(torch.empty((*shape, layer.key_dim), dtype=dtype, device=loaded.device))
            self.value_pages.append(torch.empty((*shape, layer.value_dim), dtype=dtype, device=loaded.device))


def page_bytes(loaded: LoadedModel, page_size: int, dtype: torch.dtype) -> int:
    """Bytes of one page over all layers."""
    elements = sum(layer.num_kv_heads * (layer.key_dim + layer.value_dim) for layer in loaded.layers)
    return elements * page_size * dtype.itemsize


def num_pages_for(
    loaded: LoadedModel,
    config: EngineConfig,
    memory: PageMemory,
    progress: Callable[[str], None],
    dtype: torch.dtype | None = None,
) -> int:
    """How many pages of ``dtype`` (default: the model's) ``memory`` holds.

    One sequence of the model's full length must fit. If it does not, a ``max_model_len`` that the user set is an
    error, and the model's own limit gives way with a message: a small machine can serve a long-context model.
    """
    bytes_each = page_bytes(loaded, config.page_size, dtype or loaded.dtype)
    num_pages = memory.num_bytes // bytes_each
    num_slots = num_pages * config.page_size
    if num_slots < loaded.max_model_len:
        needed = -(-loaded.max_model_len // config.page_size) * bytes_each
        if config.max_model_len is not None or num_pages == 0:
            found = f"a sequence of {loaded.max_model_len} tokens needs {needed} bytes of {memory.num_bytes}"
            raise SettingError(memory.setting, memory.value, f"{found}: raise it, or lower max_model_len")
        progress(f"{memory.num_bytes} bytes for pages hold {num_slots} tokens: no sequence may be longer than that")
    return num_pages
