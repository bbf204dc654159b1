"""That the device finds the end of a nucleus where plain torch finds it, to the last bit, and how long it takes when no
row is settled by its most likely tokens."""

from __future__ import annotations

from functools import partial

import torch

from headway.engine.nucleus import settle, settle_reference
from loadtest.gpu.checks import Item, Task
from loadtest.gpu.timing import seconds_per_call
from loadtest.row import Aim

NAME = "the end of a nucleus, no row settled"
FIGURES = ("differing_share", "search_seconds", "plain_torch_seconds")
NUM_ROWS, VOCAB_SIZE = 256, 128_256
NUM_REPEATS = 3


def task(device: torch.device) -> Task:
    return Task(Item(NAME, FIGURES, Aim(0.0, is_least=False)), partial(compare_nuclei, device))


def compare_nuclei(
    device: torch.device, num_rows: int = NUM_ROWS, vocab_size: int = VOCAB_SIZE, num_repeats: int = NUM_REPEATS
) -> dict[str, float]:
    generator = torch.Generator(device).manual_seed(0)
    # Half of the weights are so small that rows have long tails.
    weights = torch.rand(num_rows, vocab_size, generator=generator, device=device, dtype=torch.float64)
    weights = (weights.pow(8) * 2**40).long()
    top_k = torch.full((num_rows,), vocab_size, device=device)
    top_k[::3] = vocab_size // 2
    top_p = torch.linspace(0.5, 1.0, num_rows, device=device, dtype=torch.float64)
    least, is_settled = torch.zeros_like(top_k), torch.zeros_like(top_k, dtype=torch.bool)
    arguments = (least, is_settled, weights, top_k, top_p)
    found, expected = settle(*arguments), settle_reference(*arguments)
    differing = float((found != expected).double().mean())
    times = [seconds_per_call(partial(way, *arguments), device, num_repeats, 1) for way in (settle, settle_reference)]
    return dict(zip(FIGURES, (differing, *times), strict=True))
