"""How requests come, as a plan for a rate that may only be known once a system's capacity was measured.

Every request carries its own gap, drawn once with mean 1, so all systems get the same process, stretched to their rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request, WorkloadError

DEFAULT_LOAD = 0.6


class Arrivals(StrEnum):
    BURST = "burst"
    """All at once."""
    POISSON = "poisson"
    """One by one, at random moments, at a given mean rate."""
    GAMMA = "gamma"
    """The same with gaps that vary more (or less) than those of a Poisson process: in bursts."""
    RAMP = "ramp"
    """A Poisson process whose rate changes steadily, then stays."""
    CLOSED = "closed"
    """So many clients, each of which waits for its answer before it asks again."""
    TRACE = "trace"
    """At the times that a trace has recorded."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How requests come that have no time of their own."""

    arrivals: Arrivals = Arrivals.BURST
    rate: float | None = None
    """Requests per second, for all; None where there is none, or for ``load`` to decide."""
    load: float = DEFAULT_LOAD
    """Of the capacity that a burst has shown."""
    growth: float = 1.0
    """The rate at a ramp's end, over the one at its start."""
    ramp_seconds: float = 0.0
    num_clients: int = 1
    """Of a closed loop."""
    think_seconds: float = 0.0
    """A client's mean pause between an answer and its next request."""

    def text(self, rate: float | None) -> str:
        """For people; ``rate`` as in `plan`."""
        if rate is not None:
            return f"{grown(rate, self.growth, '{:.4g}')} requests/s"
        if self.arrivals is Arrivals.CLOSED:
            return f"{self.num_clients} clients"
        return "all at once" if self.arrivals is Arrivals.BURST else self.arrivals.value

    @property
    def has_rate(self) -> bool:
        return self.arrivals in (Arrivals.POISSON, Arrivals.GAMMA, Arrivals.RAMP)

    @property
    def measures_capacity(self) -> bool:
        return self.has_rate and self.rate is None

    def plan(self, requests: Sequence[Request], rate: float | None) -> Plan:
        """Raises `WorkloadError` if it takes a rate and there is none, or times that a request does not have."""
        if self.arrivals is Arrivals.CLOSED:
            pauses = [request.gap * self.think_seconds for request in requests]
            return ClosedLoop(self.num_clients, pauses, [request.due_at for request in requests])
        if self.arrivals is Arrivals.TRACE and any(request.due_at is None for request in requests):
            raise WorkloadError("arrivals of a trace need a time for every request")
        scheduled = [request for request in requests if request.due_at is None]
        moments = iter(self._moments(scheduled, rate))
        return [next(moments) if request.due_at is None else request.due_at for request in requests]

    def _moments(self, requests: Sequence[Request], rate: float | None) -> Sequence[float]:
        if not self.has_rate:
            return [0.0] * len(requests)
        if rate is None or rate <= 0:
            raise WorkloadError(f"{self.arrivals} arrivals need a rate above 0, in requests per second")
        return [self._moment(number, rate) for number in accumulate(request.gap for request in requests)]

    def _moment(self, number: float, rate: float) -> float:
        """When ``number`` requests are to be expected: what makes a process of rate 1 one whose rate changes."""
        slope = rate * (self.growth - 1) / self.ramp_seconds if self.ramp_seconds else 0.0
        at_end = (rate + slope * self.ramp_seconds / 2) * self.ramp_seconds
        if number >= at_end:
            return self.ramp_seconds + (number - at_end) / (rate * self.growth)
        # rate * t + slope / 2 * t² = number, in a form that holds for a slope of 0.
        return 2 * number / (rate + math.sqrt(rate**2 + 2 * slope * number))


def grown(start: float, growth: float | None, form: str) -> str:
    """A rate or a load, and on a ramp the one at its end."""
    end = start * (growth or 1.0)
    return form.format(start) if end == start else f"{form.format(start)} to {form.format(end)}"


BURST = Schedule()
