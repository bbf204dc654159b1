"""The op on the device against float64, case by case.

Nearly all of the time goes into compiling, so the cases are divided among processes; and an illegal access, after which
a process can use its GPU no more, spoils none but the cases that its process had left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context

import torch

from headway.engine.triton_kernels.kernels import use_triton_kernels
from loadtest.gpu.bench import Bench
from loadtest.gpu.cases import AttentionCase, attention_cases, attention_error
from loadtest.gpu.checks import Finding, Item, Part, Verdict, one_line
from loadtest.row import Aim

FIGURES = ("error",)


def items(_bench: Bench) -> Sequence[Item]:
    return [_item(case) for case in attention_cases()]


def measure(bench: Bench) -> Iterator[Finding]:
    yield from measured(attention_cases(), bench.device, bench.sizes.num_processes)


def measured(cases: Sequence[AttentionCase], device: torch.device, num_processes: int) -> Iterator[Finding]:
    if num_processes == 0:
        for case in cases:
            yield Finding(case.name, {"error": error_of(case, device)})
        return
    with _processes(min(num_processes, len(cases))) as pools:
        asked = {pools[number % len(pools)].submit(error_of, case, device): case for number, case in enumerate(cases)}
        for answer in as_completed(asked):
            yield _finding(asked[answer], answer)


def error_of(case: AttentionCase, device: torch.device) -> float:
    """Of the op as models call it."""
    from headway.engine.attention import paged_attention

    if device.type == "cuda" and not use_triton_kernels(device):
        raise RuntimeError("the kernels cannot be loaded")
    return attention_error(case, paged_attention, device)


def _finding(case: AttentionCase, answer: Future[float]) -> Finding:
    error = answer.exception()
    if error is not None:
        return Finding(case.name, note=one_line(error), verdict=Verdict.FAILED)
    return Finding(case.name, {"error": answer.result()})


@contextmanager
def _processes(number: int) -> Iterator[list[ProcessPoolExecutor]]:
    """Each with its own queue: if one ends, only what waits for it is lost."""
    # A child of fork cannot use CUDA.
    pools = [ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in range(number)]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)


def _item(case: AttentionCase) -> Item:
    return Item(case.name, FIGURES, Aim(case.tolerance, is_least=False))


PART = Part("attention", items, measure, min_seconds=20.0)
