"""Requests on their way from an event loop: each sent when it is due, all followed at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from loadtest.progress import TICK_SECONDS, Progress, Watch, nobody
from loadtest.recording import Timeline
from loadtest.workloads.plan import Due, Line

DEFAULT_TIMEOUT_SECONDS = 3600.0
Clock = Callable[[], float]
"""Seconds from the start of the run."""


async def send_all(line: Line, follow: Callable[[Due], Awaitable[None]], clock: Clock) -> None:
    """Returns when the last has ended; ``follow`` sends one and returns at its end. Raises what the first that fails
    raises."""
    has_ended = asyncio.Event()

    async def send(due: Due) -> None:
        await follow(due)
        line.ended(due.number, clock())
        has_ended.set()

    try:
        async with asyncio.TaskGroup() as group:
            while line.has_more:
                for due in line.take(clock()):
                    group.create_task(send(due), name=f"bench:request-{due.number}")
                has_ended.clear()
                if line.has_more:
                    await _until(has_ended, line.next_due_at, clock)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _until(event: asyncio.Event, moment: float | None, clock: Clock) -> None:
    """Whichever is first; no moment never comes."""
    delay = None if moment is None else moment - clock()
    with suppress(TimeoutError):
        async with asyncio.timeout(delay):
            await event.wait()


@contextmanager
def watched(timelines: Sequence[Timeline], watch: Watch, clock: Clock) -> Iterator[None]:
    """Tells of the progress while the block runs."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            watch(Progress.of(timelines, clock()))

    task = None if watch is nobody else asyncio.create_task(tell(), name="bench:progress")
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
