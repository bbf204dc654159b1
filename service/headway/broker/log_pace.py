"""When the token records of a worker's jobs go out: together, and not too often.

    reports of the engine     |       |       |       |       |       |       |
    tokens of 64 jobs         x       x       x       x       x       x       x
    records                   64              64              64              64
                              '-- interval -->'

A record costs about the same whether it carries one token or ten: a publish, its acknowledgement, a write of the
stream, a message to the client. So the pause after n records is n / `RECORDS_PER_SECOND`, within two bounds that are
settings: ``chunk_interval_seconds`` at least, ``max_chunk_interval_seconds`` at most. A few jobs stream token by token;
many share what their records cost, at the price of tokens that come two or three at a time.

All jobs have one clock, so that their records leave, and their acknowledgements come back, in one burst instead of
waking the process again for each of them in the middle of the engine's next step. For the same reason a pause that is
over waits for the engine's next report, which brings fresh tokens along, but no longer than another such pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

RECORDS_PER_SECOND = 300
"""Of all jobs together, as long as the pauses stay within their bounds. With eight jobs that is one record each per
step of 27 ms, a little less than a small model takes on two cores."""


class Pace:
    """One for all `LogWriter` of a process. Not for several threads; every call comes from the event loop."""

    def __init__(self, min_seconds: float = 0.0, max_seconds: float = 0.0) -> None:
        """The pause between two records of one job. Without ``max_seconds``, or if that is less, always the same."""
        self._min_seconds = min_seconds
        self._max_seconds = max(min_seconds, max_seconds)
        self._pause_seconds = min_seconds
        self._due_at = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._look: asyncio.Handle | None = None
        """Follows what is called in the event loop now: the whole report of a step."""
        self._guard: asyncio.TimerHandle | None = None

    def add(self, write: Callable[[], None]) -> None:
        """Call ``write`` at the next turn; never before this returns."""
        self._waiting.append(write)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._look_at_clock)

    def pause_seconds(self, num_records: int) -> float:
        """After so many records."""
        return min(max(num_records / RECORDS_PER_SECOND, self._min_seconds), self._max_seconds)

    def _look_at_clock(self) -> None:
        self._look = None
        loop = asyncio.get_running_loop()
        if loop.time() >= self._due_at:
            self._write_all()
        elif self._guard is None:
            self._guard = loop.call_at(self._due_at + self._pause_seconds, self._write_all)

    def _write_all(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
        waiting, self._waiting = self._waiting, []
        self._pause_seconds = self.pause_seconds(len(waiting))
        self._due_at = asyncio.get_running_loop().time() + self._pause_seconds
        for write in waiting:
            write()
