"""The time there is. What does not fit into it is not begun, and what takes longer is broken off."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 5.0
"""After which what was not heard is said again: libraries catch what they should not."""


class OutOfTimeError(BaseException):
    """There is none left. Not an ``Exception``: whatever runs then, an engine's step say, would take it for a fault of
    its own and try again."""


class Deadline:
    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """From now on."""
        self._clock = clock
        self._ends_at = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds; below 0 when it is over."""
        return self._ends_at - self._clock()

    def require(self, seconds: float = 0.0) -> None:
        """Before something that takes so long. Raises `OutOfTimeError`."""
        if self.left <= seconds:
            raise OutOfTimeError

    @contextmanager
    def reserved(self, seconds: float) -> Iterator[None]:
        """In the block there is so much less: it is for what comes after it."""
        self._ends_at -= seconds
        try:
            yield
        finally:
            self._ends_at += seconds

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raises `OutOfTimeError` in the block when the time is over, wherever it is, once that returns to Python. In
        the main thread only."""
        handler = signal.signal(signal.SIGALRM, _end)
        timer = signal.setitimer(signal.ITIMER_REAL, max(self.left, 0.001), AGAIN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise OutOfTimeError
