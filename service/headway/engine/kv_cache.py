"""The memory that holds keys and values, in pages, and how many pages fit.

    key_pages[layer]     [num_pages + 1, page_size, num_kv_heads, key_dim]
    value_pages[layer]   [num_pages + 1, page_size, num_kv_heads, value_dim]

      page 0           page 1           page 2
    ├──┬──┬──┬── … ──┼──┬──┬──┬── … ──┼──┬──── …     one page id names the same place in every layer,
     token slots                                     so a sequence has one page table, not one per layer

The last one is the scratch page. It belongs to nobody, `num_pages` does not count it, and what rows write that only
fill up a step goes there.

The pages are left as the allocator gives them: nothing reads a slot before it is written, and on a CPU the system
commits the memory only where pages are used. Which page belongs to whom is not known here (`core.pages`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headway.core.errors import SettingError
from headway.engine.config import EngineConfig
from headway.engine.load import LoadedModel
from headway.engine.memory import available_host_bytes
from headway.engine.parallel.group import smallest_of_ranks

CPU_SHARE = 0.25
MAX_CPU_BYTES = 4 * 1024**3


class KvCache:
    """Pages for all layers of ``loaded``, on its device and in its dtype."""

    def __init__(self, loaded: LoadedModel, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.scratch_page = num_pages
        self.page_size = page_size
        self.max_model_len = min(loaded.max_model_len, num_pages * page_size)
        """The longest sequence that the model takes and the pages hold."""
        self.key_pages: list[Tensor] = []
        self.value_pages: list[Tensor] = []
        for layer in loaded.layers:
            shape = (num_pages + 1, page_size, layer.num_kv_heads)
            self.key_pages.append(torch.empty((*shape, layer.key_dim), dtype=loaded.dtype, device=loaded.device))
            self.value_pages.append(torch.empty((*shape, layer.value_dim), dtype=loaded.dtype, device=loaded.device))


def page_bytes(loaded: LoadedModel, page_size: int) -> int:
    """Bytes of one page over all layers."""
    elements = sum(layer.num_kv_heads * (layer.key_dim + layer.value_dim) for layer in loaded.layers)
    return elements * page_size * loaded.dtype.itemsize


def num_pages_for(loaded: LoadedModel, config: EngineConfig, progress: Callable[[str], None]) -> int:
    """How many pages the memory for keys and values holds.

    One sequence of the model's full length must fit. If it does not, a ``max_model_len`` that the user set is an
    error, and the model's own limit gives way with a message: a small machine can serve a long-context model.
    """
    memory = _kv_memory_bytes(loaded, config)
    num_pages = memory // page_bytes(loaded, config.page_size)
    num_slots = num_pages * config.page_size
    if num_slots < loaded.max_model_len:
        needed = -(-loaded.max_model_len // config.page_size) * page_bytes(loaded, config.page_size)
        if config.max_model_len is not None or num_pages == 0:
            fix = f"a sequence of {loaded.max_model_len} tokens needs {needed} bytes: raise it, or lower max_model_len"
            raise SettingError("kv_memory", memory, fix)
        progress(f"kv_memory of {memory} bytes holds {num_slots} tokens: no sequence may be longer than that")
    return num_pages


def build_cache(loaded: LoadedModel, config: EngineConfig, progress: Callable[[str], None]) -> KvCache:
    num_pages = smallest_of_ranks(num_pages_for(loaded, config, progress))
    cache = KvCache(loaded, num_pages, config.page_size)
    progress(f"{num_pages} pages of {config.page_size} tokens, {page_bytes(loaded, config.page_size)} bytes each")
    return cache


def _kv_memory_bytes(loaded: LoadedModel, config: EngineConfig) -> int:
    if config.kv_memory_bytes is not None:
        return config.kv_memory_bytes
    if loaded.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(loaded.device)
        return int(free * config.memory_fraction)
    return min(int(available_host_bytes() * CPU_SHARE), MAX_CPU_BYTES) // config.tensor_parallel_size
