"""The time of a decode step beside the least that it could take: reading all weights once, and the keys and values of
all sequences once."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.gpu.decoding import Window, decoding
from loadtest.row import Aim

MAX_TIMES_FLOOR = Aim(1.25, is_least=False)
LARGEST_WITH_AIM = 64
"""Beyond, products take as long as reading, or longer."""
FIGURES = ("step_times_floor_ratio", "step_seconds", "floor_seconds", "roofline_seconds", "output_tokens_per_s")


def items(bench: Bench) -> Sequence[Item]:
    return [
        Item(_name(size, bench), FIGURES, MAX_TIMES_FLOOR if size <= LARGEST_WITH_AIM else None)
        for size in bench.sizes.batch_sizes
    ]


def measure(bench: Bench) -> Iterator[Finding]:
    sizes = bench.sizes
    for size in sizes.batch_sizes:
        bench.deadline.require()
        with decoding(bench.engine, size, sizes.context_len, sizes.max_output_len(size)) as sequences:
            windows = [sequences.window(sizes.steps_per_window) for _ in range(sizes.num_windows)]
        yield Finding(_name(size, bench), _figures(bench, size, windows))


def step_seconds(windows: Sequence[Window], batch_size: int) -> float:
    """The median. Tokens are counted and not calls, for a call may bring the tokens of an earlier step, or of none."""
    return statistics.median(window.seconds * batch_size / window.num_tokens for window in windows)


def _figures(bench: Bench, size: int, windows: Sequence[Window]) -> dict[str, float]:
    seconds = step_seconds(windows, size)
    context = statistics.mean(window.context_tokens for window in windows)
    floor = bench.floor.read_seconds(size, context)
    return {
        "step_times_floor_ratio": seconds / floor,
        "step_seconds": seconds,
        "floor_seconds": floor,
        "roofline_seconds": bench.floor.decode_step_seconds(size, context),
        "output_tokens_per_s": size / seconds,
    }


def _name(size: int, bench: Bench) -> str:
    return f"decode step of {size} × {bench.sizes.context_len} tokens"


PART = Part("steps", items, measure, min_seconds=20.0)
