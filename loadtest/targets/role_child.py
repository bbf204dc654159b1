"""A queue or a worker in a process of its own, as in a cluster, that also tells what its engine did.

python -m loadtest.targets.role_child     asked by `loadtest.targets.nats_target` over its standard input
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from headway.roles.queue import QueueRole
from headway.roles.worker import WorkerRole
from headway.settings import Settings
from loadtest.child import Child, Questions, asked
from loadtest.recording import StepLog


@dataclass(frozen=True, slots=True)
class StartQueue:
    settings: Settings


@dataclass(frozen=True, slots=True)
class StartWorker:
    settings: Settings


class Ask(Enum):
    """What a worker is asked once it serves."""

    BEGIN = auto()
    """Write down what the engine reports from now on."""
    STEPS = auto()
    """What it has reported since: a `StepLog`, with times of CLOCK_MONOTONIC."""


@contextmanager
def open_role(start: StartQueue | StartWorker, say: Callable[[str], None]) -> Iterator[tuple[Child, Any]]:
    """The child, and a queue's lease address or the process id of a worker's engine. Raises `BenchError`."""
    child = Child("loadtest.targets.role_child", say)
    try:
        yield child, child.start(start)
    finally:
        child.close()


async def _serve_queue(start: StartQueue, questions: Questions) -> None:
    queue = QueueRole(start.settings)
    try:
        await queue.start()
        questions.answer(queue.server.address)
        await _asked_or_failed(queue, questions, lambda question: None)
    finally:
        await queue.close()


async def _serve_worker(start: StartWorker, questions: Questions) -> None:
    worker = WorkerRole(start.settings)
    worker.on_stage, worker.must_start = questions.stage, True
    log = StepLog()

    def answer(question: Ask) -> StepLog | None:
        nonlocal log
        if question is Ask.STEPS:
            return log
        log = StepLog(first=worker.stats)
        worker.on_report = lambda report: log.add(report, time.monotonic())
        return None

    try:
        await worker.start()
        questions.answer(worker.engine.pid)
        await _asked_or_failed(worker, questions, answer)
    finally:
        worker.hurry()
        await worker.close()


async def _asked_or_failed(
    role: QueueRole | WorkerRole, questions: Questions, answer: Callable[[Ask], StepLog | None]
) -> None:
    """Answers until there are no more questions; raises what the role fails with."""

    async def answer_all() -> None:
        async for question in questions.following():
            questions.answer(answer(question))

    parts = [asyncio.create_task(answer_all()), asyncio.create_task(role.run(asyncio.Event()))]
    done, pending = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
    for part in pending:
        part.cancel()
    for part in done:
        part.result()


def main() -> None:
    with asked() as questions:
        match questions.next():
            case StartQueue() as start:
                asyncio.run(_serve_queue(start, questions))
            case StartWorker() as start:
                asyncio.run(_serve_worker(start, questions))
