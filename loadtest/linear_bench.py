"""How fast the packed linear layers are: ours in bfloat16 and int8 beside oneDNN's in bfloat16, alternating, and all
beside the machine's floor for bfloat16.

    python -m loadtest.linear_bench --rows 1 16 64 --repeats 7

A pass calls the linears of a whole model in the order of a step, so that weights come from memory as they do there, and
sums the time by shape. Of several passes the median counts. The floor of a shape is the time to read its weights, or to
multiply, whichever is longer, at the rates that this machine reached in the same run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from headway.engine.huge_pages import move_to_huge_pages
from headway.engine.int8_linear import Int8Linear
from headway.engine.native.kernels import use_native_kernels
from headway.engine.native_linear import NativeLinear
from headway.engine.packed_linear import PackedLinear
from loadtest.floor_probe import matrix_rate, read_rate


@dataclass(frozen=True, slots=True)
class Shape:
    """A linear layer of the model, and how often it has one."""

    name: str
    in_features: int
    out_features: int
    count: int

    @property
    def weights(self) -> int:
        return self.in_features * self.out_features * self.count


LAYERS = 30
SMOLLM2 = (
    Shape("q/k/v", 576, 960, LAYERS),
    Shape("output", 576, 576, LAYERS),
    Shape("gate/up", 576, 3072, LAYERS),
    Shape("down", 1536, 576, LAYERS),
    Shape("head", 576, 49152, 1),
)

KINDS: dict[str, Callable[[Tensor, None], nn.Module]] = {
    "ours": NativeLinear,
    "int8": Int8Linear,
    "oneDNN": PackedLinear,
}
REFERENCE = "ours"
"""What the times of the others are divided by."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine reaches with all threads of torch, per second."""

    read_bytes: float
    operations: float

    def floor(self, shape: Shape, rows: int) -> float:
        """Seconds."""
        return max(2 * shape.weights / self.read_bytes, 2 * shape.weights * rows / self.operations)


class Stack:
    """All linears of the model in one implementation."""

    def __init__(self, build: Callable[[Tensor, None], nn.Module]) -> None:
        weights = {shape: torch.randn(shape.out_features, shape.in_features).bfloat16() for shape in SMOLLM2}
        shapes = [*SMOLLM2[:-1] * LAYERS, SMOLLM2[-1]]
        self._calls = [(shape, build(weights[shape], None)) for shape in shapes]  # each with a copy of its own
        move_to_huge_pages([buffer for _, module in self._calls for buffer in module.buffers()])

    def run(self, inputs: dict[int, Tensor]) -> dict[Shape, float]:
        """Seconds by shape. ``inputs`` by their width."""
        seconds = dict.fromkeys(SMOLLM2, 0.0)
        for shape, module in self._calls:
            start = perf_counter()
            module(inputs[shape.in_features])
            seconds[shape] += perf_counter() - start
        return seconds


def compare(stacks: Sequence[Stack], rows: int, repeats: int) -> list[dict[Shape, float]]:
    """The median seconds of each stack by shape, from passes that take turns. The first pass of each is not counted."""
    widths = {shape.in_features for shape in SMOLLM2}
    inputs = {width: torch.randn(rows, width, dtype=torch.bfloat16) for width in widths}
    passes = [[stack.run(inputs) for stack in stacks] for _ in range(repeats + 1)][1:]
    return [
        {shape: statistics.median(one[index][shape] for one in passes) for shape in SMOLLM2}
        for index in range(len(stacks))
    ]


def report(rows: int, times: Mapping[str, Mapping[Shape, float]], machine: Machine) -> None:
    floors = {shape: machine.floor(shape, rows) for shape in SMOLLM2}
    for shapes, name in [*(((shape,), shape.name) for shape in SMOLLM2), (SMOLLM2, "all")]:
        sums = {kind: sum(seconds[shape] for shape in shapes) for kind, seconds in times.items()}
        floor = sum(floors[shape] for shape in shapes)
        columns = "".join(
            f"  {kind}{seconds * 1e3:8.2f} ms ({seconds / sums[REFERENCE]:4.2f})" for kind, seconds in sums.items()
        )
        print(f"{rows:4} rows  {name:8}{columns}  floor{floor * 1e3:7.2f} ms", flush=True)


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64, 256, 512], help="tokens in the step")
    parser.add_argument("--repeats", type=int, default=7, help="passes per number of rows")
    parser.add_argument("--threads", type=int, default=None, help="default: torch's own choice")
    parser.add_argument("--cache-folder", type=Path, default=Path.home() / ".cache" / "headway")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    if not use_native_kernels(options.cache_folder, print):
        parser.exit(1, "there is no native kernel\n")
    stacks = [Stack(build) for build in KINDS.values()]
    machine = Machine(read_rate(), matrix_rate(torch.bfloat16))
    print(
        f"{torch.get_num_threads()} threads, read {machine.read_bytes / 1e9:.1f} GB/s, "
        f"multiply {machine.operations / 1e9:.0f} GFLOP/s"
    )
    for rows in options.rows:
        times = compare(stacks, rows, options.repeats)
        report(rows, dict(zip(KINDS, times, strict=True)), machine)


if __name__ == "__main__":
    main()
