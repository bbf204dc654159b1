"""The benchmark by which continuous batching became known, as far as its text describes it.

1,000 prompts of 512 tokens, all at once; lengths of output drawn from an exponential distribution of mean 128 and,
where a draw is beyond the cap, drawn again (Anyscale, "How continuous batching enables 23x throughput in LLM
inference", 2023; caps 32, 128, 512 and 1,536). A small cap makes lengths alike, a large one leaves the long tail.
"""

from __future__ import annotations

import math
import random

from loadtest.simulated.worker import SimulatedJob

MEAN_TOKENS = 128.0
NUM_PROMPT_TOKENS = 512
NUM_JOBS = 1000
CAPS = (32, 128, 512, 1536)


def field_jobs(cap: int, seed: int, num_jobs: int = NUM_JOBS) -> tuple[SimulatedJob, ...]:
    source = random.Random(seed)
    return tuple(SimulatedJob(NUM_PROMPT_TOKENS, _draw(source, cap)) for _ in range(num_jobs))


def ideal_ratio(batch: int, cap: int) -> float:
    """Steps of static over those of continuous batching, if no slot of the latter were ever empty: a static batch takes
    as long as its longest row, E[max] / E[mean]."""
    return _mean_of_longest(batch, cap) / _mean_of_longest(1, cap)


def _draw(source: random.Random, cap: int) -> int:
    while True:
        length = source.expovariate(1 / MEAN_TOKENS)
        if length <= cap:
            return max(1, round(length))


def _mean_of_longest(number: int, cap: int, num_points: int = 20_000) -> float:
    """E[max] = ∫ 1 - F(x)^number dx from 0 to the cap, F being the capped exponential distribution (midpoints)."""
    whole = 1 - math.exp(-cap / MEAN_TOKENS)
    width = cap / num_points
    shares = ((1 - math.exp(-(index + 0.5) * width / MEAN_TOKENS)) / whole for index in range(num_points))
    return math.fsum(1 - share**number for share in shares) * width
