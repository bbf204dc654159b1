"""Records steps as CUDA graphs. Nothing is decided here: this is the part that only a GPU can run.

All graphs allocate from one pool. They never run at the same time, so each may use what the last one used.

A step that waits for the device is found out before it is captured. A capture that fails is worse than none: the driver
gives it up as a whole, and torch keeps the pool's memory (https://github.com/pytorch/pytorch/pull/190308).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
            with no_waiting():
                step()
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


@contextmanager
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device raises ``RuntimeError``; of what torch knows to do so."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode may miss something
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
