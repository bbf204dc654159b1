"""The wall clock of a process, kept from going back.

Deadlines and the broker's timestamps are wall-clock times; a clock that is set back must not make a wait negative or
a lease longer.
"""

from __future__ import annotations

import time


class WallClock:
    """Seconds since the epoch."""

    def __init__(self) -> None:
        self._latest = 0.0

    def now(self) -> float:
        self._latest = max(self._latest, time.time())
        return self._latest
