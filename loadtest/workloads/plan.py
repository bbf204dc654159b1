"""When each request is sent: known beforehand, or only once another has ended.

In an open loop clients come whether or not the system keeps up, so a plan is a list of times. In a closed loop a few
clients each wait for an answer, pause, and ask again, so the system sets the pace. A `Line` is either of them while it
is carried out; it has no clock, so every target drives it with its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    num_clients: int
    pauses: Sequence[float]
    """By request: seconds between the end of the one before, of the same client, and this."""
    due_at: Sequence[float | None]
    """By request: seconds from the start for those that no client of the loop sends, None for all others."""


Plan = Sequence[float] | ClosedLoop
"""The times by request in seconds from the start, or a closed loop."""


class Due(NamedTuple):
    """Sorts by time, then in the order of the requests."""

    due_at: float
    number: int
    """Its place among the requests."""


class Line:
    """The requests of a plan that are still to be sent. Times are in seconds from the start."""

    def __init__(self, plan: Plan) -> None:
        due_at, self._pauses = (plan.due_at, plan.pauses) if isinstance(plan, ClosedLoop) else (plan, ())
        self._due = [Due(moment, index) for index, moment in enumerate(due_at) if moment is not None]
        self._undue = deque(index for index, moment in enumerate(due_at) if moment is None)
        self._of_clients = frozenset(self._undue)
        heapq.heapify(self._due)
        if isinstance(plan, ClosedLoop):
            for _ in range(plan.num_clients):
                self._next_of_client(0.0)

    @property
    def has_more(self) -> bool:
        """Whether any is left, due or not."""
        return bool(self._due or self._undue)

    @property
    def next_due_at(self) -> float | None:
        """None: only the end of another request tells."""
        return self._due[0].due_at if self._due else None

    def take(self, now: float) -> list[Due]:
        """Those that are due, in order; they are no longer in the line."""
        taken = []
        while self._due and self._due[0].due_at <= now:
            taken.append(heapq.heappop(self._due))
        return taken

    def ended(self, index: int, now: float) -> None:
        """Whoever sent it may send another. Told once for every request that was taken."""
        if index in self._of_clients:
            self._next_of_client(now)

    def _next_of_client(self, now: float) -> None:
        if self._undue:
            index = self._undue.popleft()
            heapq.heappush(self._due, Due(now + self._pauses[index], index))
