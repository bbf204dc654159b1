"""Times of calls, and what a device does at its best.

On a GPU a call is captured once and replayed often, so that no launch's cost on the host is in its time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

NUM_CALLS = 10
"""In one graph."""


def copy_rate(device: torch.device, num_repeats: int, num_bytes: int) -> float:
    """Bytes per second, read and written, of torch's copy of a tensor of ``num_bytes`` within the device's memory."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_per_call(lambda: target.copy_(source), device, num_repeats)


def matmul_rate(device: torch.device, num_repeats: int, size: int, dtype: torch.dtype) -> float:
    """Operations per second of a product of two square matrices; a multiplication and an addition are two."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    output = torch.empty_like(left)
    return 2 * size**3 / seconds_per_call(lambda: torch.mm(left, right, out=output), device, num_repeats)


def seconds_per_call(
    call: Callable[[], object], device: torch.device, num_repeats: int, num_calls: int = NUM_CALLS
) -> float:
    """The median of ``num_repeats`` times of ``num_calls`` calls in a row, per call. On a GPU, ``call`` must do the
    same every time, in the same tensors."""
    time_once = _replays(call, num_calls) if device.type == "cuda" else _host_calls(call, num_calls)
    time_once()
    return statistics.median(time_once() for _ in range(num_repeats)) / num_calls


def _host_calls(call: Callable[[], object], num_calls: int) -> Callable[[], float]:
    def time_once() -> float:
        started = time.perf_counter()
        for _ in range(num_calls):
            call()
        return time.perf_counter() - started

    return time_once


def _replays(call: Callable[[], object], num_calls: int) -> Callable[[], float]:
    graph = captured(lambda: [call() for _ in range(num_calls)])

    def time_once() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000

    return time_once


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """``call`` as a graph; it runs once before, to compile what it needs, on a stream of its own as capturing asks."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
