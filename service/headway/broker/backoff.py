"""Pauses between tries that grow and are jittered, so that many clients of a server that comes back do not meet."""

from __future__ import annotations

import asyncio
import random

FIRST_SECONDS = 0.02
MAX_SECONDS = 2.0


class Backoff:
    """`pause` waits half to all of a bound that doubles from call to call. One object per run of tries."""

    def __init__(self, first_seconds: float = FIRST_SECONDS, max_seconds: float = MAX_SECONDS) -> None:
        self._seconds = first_seconds
        self._max_seconds = max_seconds

    async def pause(self) -> None:
        await asyncio.sleep(self._seconds * random.uniform(0.5, 1.0))
        self._seconds = min(2 * self._seconds, self._max_seconds)
