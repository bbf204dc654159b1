"""How fast the decode kernel reads keys and values, beside a copy within the device's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from headway.engine.triton_kernels.attend import decode_launches
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.op import chip_of
from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.gpu.timing import seconds_per_call
from loadtest.row import Aim

NAME = "decode kernel, 64 × 4096 tokens"
MIN_COPY_SHARE = Aim(0.8, is_least=True)
FIGURES = ("copy_share", "kernel_seconds", "kernel_bytes_per_s", "copy_bytes_per_s")


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

    @property
    def figures(self) -> dict[str, float]:
        values = (self.share, self.seconds, self.bytes_per_s, self.copy_bytes_per_s)
        return dict(zip(FIGURES, values, strict=True))


def items(_bench: Bench) -> Sequence[Item]:
    return [Item(NAME, FIGURES, MIN_COPY_SHARE)]


def measure(bench: Bench) -> Iterator[Finding]:
    shape = DecodeShape()
    seconds = time_decode(shape, bench.device, bench.num_repeats)
    yield Finding(NAME, DecodeTiming(seconds, shape.kv_bytes, bench.rates.copy_bytes_per_s).figures)


def time_decode(shape: DecodeShape, device: torch.device, num_repeats: int) -> float:
    """Seconds of the layer's kernels."""
    batch = decode_batch(shape, device)
    launches = decode_launches(batch, torch.empty_like(batch.query), chip_of(device))

    def attend() -> None:
        for launch in launches:
            launch.run()

    return seconds_per_call(attend, device, num_repeats)


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


PART = Part("bandwidth", items, measure, min_seconds=5.0)
