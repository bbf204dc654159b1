"""Takes the jobs that have ended out of the stream: whoever settles one does not wait, and many go together."""

from __future__ import annotations

import asyncio
from collections import deque

from headway.broker.intake import JobsIntake

MAX_TOGETHER = 256


class Settlements:
    """Of one leader; `run` does the work."""

    def __init__(self, intake: JobsIntake) -> None:
        self._intake = intake
        self._waiting: deque[int] = deque()
        """Stream sequences."""
        self._has_news = asyncio.Event()
        self._is_done = asyncio.Event()
        self._is_done.set()

    def settle(self, stream_sequence: int) -> None:
        """Acknowledge the job soon: its end is stored."""
        self._waiting.append(stream_sequence)
        self._has_news.set()
        self._is_done.clear()

    async def run(self) -> None:
        """For ever. Raises `Deposed`."""
        while True:
            await self._has_news.wait()
            together = [self._waiting.popleft() for _ in range(min(MAX_TOGETHER, len(self._waiting)))]
            await self._intake.ack_together(together)
            if not self._waiting:
                self._has_news.clear()
                self._is_done.set()

    async def finish(self) -> None:
        """Returns once all that was settled is out of the stream; `run` must go on meanwhile."""
        await self._is_done.wait()
