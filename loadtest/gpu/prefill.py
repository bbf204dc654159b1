"""How fast prompts are computed, beside a large matrix product: the least of a prompt is its products."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence

from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.targets.engine_target import run_on_engine
from loadtest.workloads.requests import Request

NUM_RUNS = 3
FIGURES = ("matmul_share", "prompt_tokens_per_s", "model_flops_per_s", "matmul_flops_per_s")


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(length), FIGURES) for length in bench.sizes.prompt_lengths]


def measure(bench: Bench) -> Iterator[Finding]:
    for length in bench.sizes.prompt_lengths:
        bench.deadline.require()
        num_prompts = max(1, bench.sizes.num_prompt_tokens // length)
        # The first run may compile.
        seconds = [_seconds(bench, length, num_prompts, seed) for seed in range(NUM_RUNS + 1)][1:]
        yield Finding(_name(length), _figures(bench, length, num_prompts, statistics.median(seconds)))


def _seconds(bench: Bench, length: int, num_prompts: int, seed: int) -> float:
    """From when all prompts are there to the first token of the last."""
    draw = random.Random(seed)
    vocabulary = bench.engine.ready.vocab_size
    prompts = [tuple(draw.randrange(vocabulary) for _ in range(length)) for _ in range(num_prompts)]
    recording = run_on_engine(bench.engine, [Request(prompt, 1) for prompt in prompts], [0.0] * num_prompts)
    if len(recording.completed) < num_prompts:
        raise RuntimeError(f"only {len(recording.completed)} of {num_prompts} prompts were computed")
    return recording.duration_seconds


def _figures(bench: Bench, length: int, num_prompts: int, seconds: float) -> dict[str, float]:
    flops_per_s = num_prompts * bench.sizes.model.prefill_flops(length) / seconds
    matmul = bench.rates.matmul_flops_per_s
    values = (flops_per_s / matmul, num_prompts * length / seconds, flops_per_s, matmul)
    return dict(zip(FIGURES, values, strict=True))


def _name(length: int) -> str:
    return f"prompts of {length} tokens"


PART = Part("prefill", items, measure, min_seconds=15.0)
