from __future__ import annotations

import asyncio

import pytest

from loadtest.progress import Progress
from loadtest.recording import Timeline
from loadtest.targets.sending import Clock, send_all, watched
from loadtest.workloads.plan import ClosedLoop, Due, Line
from loadtest.workloads.requests import Request


class Followed:
    """Takes note of what is sent; each request ends when the test says so."""

    def __init__(self, number: int) -> None:
        self.sent: list[Due] = []
        self.ends = [asyncio.Event() for _ in range(number)]

    async def __call__(self, due: Due) -> None:
        self.sent.append(due)
        await self.ends[due.number].wait()


def running_clock() -> Clock:
    loop = asyncio.get_running_loop()
    started = loop.time()
    return lambda: loop.time() - started


async def test_a_request_does_not_wait_for_the_end_of_another(eventually):
    followed = Followed(2)
    task = asyncio.create_task(send_all(Line([0.0, 0.02]), followed, running_clock()))
    await eventually(lambda: len(followed.sent) == 2)
    assert not task.done()
    for end in followed.ends:
        end.set()
    await task


async def test_an_end_sends_the_next_of_a_closed_loop(eventually):
    followed = Followed(3)
    plan = ClosedLoop(1, pauses=[0.0] * 3, due_at=[None] * 3)
    task = asyncio.create_task(send_all(Line(plan), followed, running_clock()))
    for number in range(3):
        await eventually(lambda number=number: len(followed.sent) == number + 1)
        followed.ends[number].set()
    await task


async def test_what_one_raises_ends_all():
    cancelled = []

    async def follow(due: Due) -> None:
        if due.number == 1:
            raise RuntimeError("broken")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(due.number)
            raise

    with pytest.raises(RuntimeError, match="broken"):
        await send_all(Line([0.0, 0.0, 3600.0]), follow, lambda: 0.0)
    assert cancelled == [0]


async def test_progress_is_told_until_the_block_ends(eventually):
    heard: list[Progress] = []
    timelines = [Timeline.of(Request((1,), 1))]
    with watched(timelines, heard.append, lambda: 2.0):
        await eventually(lambda: heard)
    assert heard[0] == Progress(2.0, 1, 0, 0, 0, None)
