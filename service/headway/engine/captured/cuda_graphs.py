"""Records steps as CUDA graphs. Nothing is decided here: this is the part that only a GPU can run.

All graphs allocate from one pool. They never run at the same time, so each may use what the last one used.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from headway.engine.captured.recording import Replay


class GraphRecorder:
    """On ``device``, the current one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)
        self._free_before = self._free_bytes()

    def record(self, step: Callable[[], None]) -> Replay:
        graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        # Around the capture too: one that fails leaves its stream behind as the current one.
        with torch.cuda.stream(self._stream):
            step()  # compiles kernels, and lets libraries allocate what they keep: neither can be captured
            # Other threads of this process may go on meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                step()
        current.wait_stream(self._stream)
        return graph.replay

    @property
    def num_bytes(self) -> int:
        return max(0, self._free_before - self._free_bytes())

    def _free_bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self._device)
        return free
