"""That what runs on the device computes what it should: the op case by case against float64, the kernels that write
pages, a captured decode, the search for a nucleus, and the tokens of a whole engine.

Nearly all of the time goes into compiling, so the tasks are divided among processes; and an illegal access, after which
a process can use its GPU no more, spoils none but the tasks that its process had left. The engine has a process of its
own: torch.compile keeps what it has compiled by code and not by model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context

import torch

from headway.engine.triton_kernels.kernels import use_triton_kernels
from loadtest.gpu import nucleus, pages, tokens
from loadtest.gpu.bench import Bench
from loadtest.gpu.cases import AttentionCase, attention_cases, attention_error
from loadtest.gpu.checks import AbsentError, Finding, Item, Part, Task, Verdict, one_line
from loadtest.row import Aim


def tasks(bench: Bench) -> list[Task]:
    cases = [
        Task(Item(case.name, ("error",), Aim(case.tolerance, is_least=False)), partial(case_error, case, bench.device))
        for case in attention_cases()
    ]
    return [tokens.task(bench), *pages.tasks(bench.device), nucleus.task(bench.device), *cases]


def items(bench: Bench) -> Sequence[Item]:
    return [task.item for task in tasks(bench)]


def measure(bench: Bench) -> Iterator[Finding]:
    yield from carried_out(tasks(bench), bench.device, bench.sizes.num_processes)


def carried_out(given: Sequence[Task], device: torch.device, num_processes: int) -> Iterator[Finding]:
    """Here, one after the other, if ``num_processes`` is 0."""
    if num_processes == 0:
        for task in given:
            yield _finding(task, _here(task, device))
        return
    with _processes(num_processes) as processes:
        first, *others = processes
        shared = [task for task in given if not task.is_long]
        asked = {first.submit(_carry_out, task, device): task for task in given if task.is_long}
        for number, task in enumerate(shared):
            process = others[number % len(others)] if others else first
            asked[process.submit(_carry_out, task, device)] = task
        for answer in as_completed(asked):
            yield _finding(asked[answer], answer)


def case_error(case: AttentionCase, device: torch.device) -> dict[str, float]:
    """Of the op as models call it."""
    from headway.engine.attention import paged_attention

    return {"error": attention_error(case, paged_attention, device)}


def _carry_out(task: Task, device: torch.device) -> Mapping[str, float]:
    if device.type == "cuda" and not use_triton_kernels(device):
        raise RuntimeError("the kernels cannot be loaded")
    return task.compute()


def _here(task: Task, device: torch.device) -> Future[Mapping[str, float]]:
    done: Future[Mapping[str, float]] = Future()
    try:
        done.set_result(_carry_out(task, device))
    except Exception as error:
        done.set_exception(error)
    return done


def _finding(task: Task, answer: Future[Mapping[str, float]]) -> Finding:
    error = answer.exception()
    if isinstance(error, AbsentError):
        return Finding(task.item.name, note=str(error), verdict=Verdict.ABSENT)
    if error is not None:
        return Finding(task.item.name, note=one_line(error), verdict=Verdict.FAILED)
    return Finding(task.item.name, answer.result())


@contextmanager
def _processes(number: int) -> Iterator[list[ProcessPoolExecutor]]:
    """Each with its own line of tasks: if one ends, only what waits for it is lost. If this is broken off, they are
    killed: what they still computed would be in the times of what is measured next."""
    # A child of fork cannot use CUDA.
    pools = [ProcessPoolExecutor(1, mp_context=get_context("spawn")) for _ in range(number)]
    others = active_children()
    try:
        yield pools
    except BaseException:
        for process in active_children():
            if process not in others:
                process.kill()
        raise
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


PART = Part("correctness", items, measure, min_seconds=30.0)
