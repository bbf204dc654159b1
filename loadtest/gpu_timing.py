"""Times of kernels on a GPU: captured once, replayed often, so that no launch's cost on the host is in them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from headway.engine.triton_kernels.attend import decode_launches
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.op import chip_of

COPY_BYTES = 4 * 2**30
"""Of the tensor that is copied; many times what the caches hold."""


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """A batch of decodes of one length, one layer. The default is Llama 3 8B's."""

    num_sequences: int = 64
    context_len: int = 4096
    num_heads: int = 32
    num_kv_heads: int = 8
    dim: int = 128
    page_size: int = 16

    @property
    def kv_bytes(self) -> int:
        """That the layer must read, in 16-bit types."""
        return self.num_sequences * self.context_len * self.num_kv_heads * self.dim * 2 * 2

    @property
    def num_pages(self) -> int:
        return self.num_sequences * -(-self.context_len // self.page_size)


@dataclass(frozen=True, slots=True)
class DecodeTiming:
    """What was measured."""

    seconds: float
    """Of one layer's decode kernels."""
    kv_bytes: int
    copy_bytes_per_s: float
    """Read and written."""

    @property
    def bytes_per_s(self) -> float:
        return self.kv_bytes / self.seconds

    @property
    def share(self) -> float:
        """Of the copy's rate."""
        return self.bytes_per_s / self.copy_bytes_per_s


def time_decode(shape: DecodeShape, device: torch.device, num_repeats: int) -> DecodeTiming:
    batch = decode_batch(shape, device)
    output = torch.empty_like(batch.query)
    launches = decode_launches(batch, output, chip_of(device))

    def attend() -> None:
        for launch in launches:
            launch.run()

    return DecodeTiming(seconds_per_call(attend, num_repeats), shape.kv_bytes, copy_rate(device, num_repeats))


def decode_batch(shape: DecodeShape, device: torch.device) -> Batch:
    """Random keys and values in pages of random order."""

    def draw(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=device, dtype=torch.bfloat16)

    pages = (shape.num_pages, shape.page_size, shape.num_kv_heads, shape.dim)
    table = torch.randperm(shape.num_pages, device=device).view(shape.num_sequences, -1)
    return Batch(
        query=draw(shape.num_sequences, shape.num_heads, shape.dim),
        key_pages=draw(*pages),
        value_pages=draw(*pages),
        page_table=table.int(),
        query_start=torch.arange(shape.num_sequences + 1, device=device, dtype=torch.int32),
        context_lens=torch.full((shape.num_sequences,), shape.context_len, device=device, dtype=torch.int32),
        scale=shape.dim**-0.5,
    )


def copy_rate(device: torch.device, num_repeats: int, num_bytes: int = COPY_BYTES) -> float:
    """Bytes per second, read and written, of torch's copy from device memory to device memory."""
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_per_call(lambda: target.copy_(source), num_repeats)


def seconds_per_call(call: Callable[[], object], num_repeats: int, num_calls: int = 10) -> float:
    """The median of ``num_repeats`` replays of ``num_calls`` calls each, per call."""
    graph = captured(lambda: [call() for _ in range(num_calls)])
    graph.replay()
    seconds = []
    for _ in range(num_repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1000 / num_calls)
    return statistics.median(seconds)


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
