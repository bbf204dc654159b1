"""The queue in a process of its own, as in a cluster, that also tells how long its decisions take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from headway.core.lease_actions import Action, Send
from headway.core.lease_messages import Grant, WorkerMessage
from headway.core.leases import Leases
from headway.roles.queue import QueueRole
from headway.settings import Settings
from loadtest.child import Child, Questions, asked
from loadtest.queue_load.parts import until_first_ends


@dataclass(frozen=True, slots=True)
class Started:
    lease_address: str
    read_seconds: float
    """From the takeover of the stream to the first worker that could be let in."""


class AskQueue(Enum):
    STATUS = auto()
    """A `QueueStatus`."""
    DECISIONS = auto()
    """`Decisions` since this was asked last."""


@dataclass(slots=True)
class Decisions:
    """Of messages of workers that led to grants."""

    seconds: list[float] = field(default_factory=list)
    """Of each such message, divided by its grants."""
    num_grants: int = 0


@contextmanager
def open_queue(settings: Settings, say: Callable[[str], None]) -> Iterator[tuple[Child, Started]]:
    """It has read the whole stream when this returns. Raises `BenchError`."""
    child = Child("loadtest.queue_load.queue_child", say)
    try:
        yield child, child.ask(settings)
    finally:
        child.close()


class _TimedQueue(QueueRole):
    """Remembers when it began to read, and times its leader's decisions."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.decisions = Decisions()
        self._reads_since = 0.0
        self.read_seconds = 0.0

    def _on_stage(self, stage: str | None) -> None:
        now = time.perf_counter()
        if stage is None:
            self.read_seconds = now - self._reads_since
            self._watch(self._leadership._leases)
        elif stage == "reading the stream of jobs":
            self._reads_since = now
        super()._on_stage(stage)

    def _watch(self, leases: Leases) -> None:
        receive = leases.receive

        def timed(stream: int, message: WorkerMessage, now: float) -> list[Action]:
            started = time.perf_counter()
            actions = receive(stream, message, now)
            seconds = time.perf_counter() - started
            num_grants = sum(isinstance(action, Send) and isinstance(action.message, Grant) for action in actions)
            if num_grants:
                self.decisions.seconds.append(seconds / num_grants)
                self.decisions.num_grants += num_grants
            return actions

        setattr(leases, "receive", timed)  # noqa: B010 (mypy would not let us)


async def _serve(settings: Settings, questions: Questions) -> None:
    queue = _TimedQueue(settings)
    try:
        await queue.start()
        questions.answer(Started(queue.server.address, queue.read_seconds))
        await until_first_ends(_answer_all(queue, questions), queue.run(asyncio.Event()))
    finally:
        await queue.close()


async def _answer_all(queue: _TimedQueue, questions: Questions) -> None:
    async for question in questions.following():
        if question is AskQueue.STATUS:
            questions.answer(queue.status())
        else:
            questions.answer(queue.decisions)
            queue.decisions = Decisions()


def main() -> None:
    with asked() as questions:
        asyncio.run(_serve(questions.next(), questions))
