"""The time that a leader goes by: wall-clock seconds that never jump.

Deadlines count from the broker's timestamps, so it has to be the wall clock, which people and daemons set:

    wall clock       ──────┐                    set back by an hour, or forward
                           └──────────────
    this clock       ─────────╌╌╌╌╌╌╌╌╌╌╌       goes on, slower or faster, until it meets the wall clock

Leases and graces are measured on it too. If it stood still until a clock that was set back had caught up, no lease
would run out for as long, and the jobs of a dead worker would wait; if it jumped, every worker would have been silent
for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_SLEW = 0.5
"""Seconds of correction per second: a lease lasts from two thirds to twice its time while the clock is corrected."""


class WallClock:
    """Seconds since the epoch."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._now = wall()
        self._looked_at = monotonic()

    def now(self) -> float:
        looked_at = self._monotonic()
        elapsed, self._looked_at = looked_at - self._looked_at, looked_at
        by_itself = self._now + elapsed
        correction = self._wall() - by_itself
        self._now = by_itself + max(-MAX_SLEW * elapsed, min(MAX_SLEW * elapsed, correction))
        return self._now
