"""The steps in flight: one that the device runs, and the next one, which the host has launched meanwhile.

    device   │ step k         │ step k+1         │ step k+2
    host     │ ends k-1, plans and launches k+1  │ ends k, …      nobody waits for the other

With one step at a time this is the plain loop: each is launched when the one before it has ended.

**Failures.** A step that fails is run again by itself (`careful_runner`), and so is what was launched behind it, when
its turn comes; nothing new is launched before. Sequences and pages are still as they were planned, except for who has
ended or was preempted meanwhile: these are left out. (Who was preempted holds no pages, and samples the same token once
it has joined again.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.core.batch import StepPlan, StepResult
from headway.core.sequence import SequenceStatus
from headway.engine.careful_runner import CarefulRunner
from headway.engine.runner import PendingStep


@dataclass(slots=True, eq=False)
class Flight:
    """A step from its planning to its end. Times are those of the pipeline's clock."""

    plan: StepPlan
    began_at: float
    """When the planning of it began."""
    planned_at: float
    step: PendingStep | None
    """None: it is run when its turn comes."""
    ended_at: float | None = None
    """None: it was not seen to end before it was read."""


class Pipeline:
    def __init__(self, runner: CarefulRunner, max_steps: int, clock: Callable[[], float]) -> None:
        """``max_steps``: in flight at once, at least 1."""
        self._runner = runner
        self._max_steps = max_steps
        self._clock = clock
        self._flights: deque[Flight] = deque()
        self._last_ended_at = clock()

    @property
    def is_empty(self) -> bool:
        return not self._flights

    @property
    def has_room(self) -> bool:
        """Whether another step may be planned and launched now."""
        return not self._flights or (len(self._flights) < self._max_steps and self._flights[-1].step is not None)

    def launch(self, plan: StepPlan, began_at: float) -> None:
        flight = Flight(plan, began_at, self._clock(), None)
        if self._max_steps > 1:
            flight.step = self._runner.launch(plan)
            if flight.step is not None and flight.step.has_ended:  # the device is this very thread
                flight.ended_at = self._clock()
        self._flights.append(flight)

    def finish(self) -> tuple[Flight, StepResult]:
        """The oldest step and its result, when it has ended. Raises `EngineError` if the engine is broken."""
        flight = self._flights.popleft()
        result = None if flight.step is None else self._runner.finish(flight.plan, flight.step)
        if result is None:
            for later in self._flights:
                later.step = later.ended_at = None
            flight.ended_at = None
            result = self._runner.run(_without_leavers(flight.plan))
        return flight, result

    def seconds(self, flight: Flight) -> float:
        """What a step that has ended took for itself, up to now: from its planning, or from the end of the one before
        if that came later."""
        return self._end_of(flight) - max(flight.began_at, self._last_ended_at)

    def close(self, flight: Flight) -> float:
        """The same when all is done for it; here the next one begins."""
        seconds = self.seconds(flight)
        self._last_ended_at = self._end_of(flight)
        return seconds

    def _end_of(self, flight: Flight) -> float:
        return self._clock() if flight.ended_at is None else flight.ended_at


def _without_leavers(plan: StepPlan) -> StepPlan:
    return replace(plan, chunks=tuple(c for c in plan.chunks if c.sequence.status is SequenceStatus.RUNNING))
