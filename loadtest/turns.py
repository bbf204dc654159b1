"""Systems take turns, round by round, at one of three ways for requests to come.

burst             all at once
rate              the same Poisson process for everybody
load              a burst measures what each system can take; then each gets its own Poisson process, at that share of
                  its own capacity, and Headway gets each opponent's too, so that both readings of "as loaded" are there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.errors import BenchError
from loadtest.report import build_report
from loadtest.targets.systems import Say, System
from loadtest.workloads.requests import Arrivals, Request, arrival_times

HEADWAY = "headway"
"""The target's name among the systems."""
DEFAULT_LOAD = 0.6

Run = dict[str, Any]
"""A report of `loadtest.report`, with the ``rate`` of its arrivals (None: a burst)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How requests come."""

    arrivals: Arrivals = Arrivals.BURST
    rate: float | None = None
    """Requests per second, for all; only for Poisson arrivals, where it may be None for ``load`` to decide."""
    load: float = DEFAULT_LOAD
    """Of the capacity that a burst has shown."""

    @property
    def measures_capacity(self) -> bool:
        return self.arrivals is Arrivals.POISSON and self.rate is None


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs by system, in the order of the rounds."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    """As the schedule says."""
    bursts: dict[str, list[Run]] = field(default_factory=dict)
    """Those that measured capacity."""
    at_their_rate: dict[str, list[Run]] = field(default_factory=dict)
    """Headway's, by opponent, with the arrivals that the opponent had in the same round."""


@dataclass(frozen=True, slots=True)
class Turns:
    """``systems`` has Headway's target first."""

    systems: Mapping[str, System]
    requests: Sequence[Request]
    schedule: Schedule
    say: Say

    def take(self, num_rounds: int) -> Measured:
        """Raises `BenchError` if a system does not answer, or completes nothing: there would be nothing to compare."""
        measured = Measured()
        for number in range(1, num_rounds + 1):
            self.say(f"round {number} of {num_rounds}")
            if self.schedule.measures_capacity:
                self._loaded_round(measured)
            else:
                for name in self.systems:
                    measured.runs.setdefault(name, []).append(
                        self._run(name, self.schedule.arrivals, self.schedule.rate)
                    )
        return measured

    def _loaded_round(self, measured: Measured) -> None:
        rates: dict[str, float] = {}
        for name in self.systems:
            burst = self._run(name, Arrivals.BURST, None)
            measured.bursts.setdefault(name, []).append(burst)
            rates[name] = self.schedule.load * capacity(burst)
        for name, rate in rates.items():
            measured.runs.setdefault(name, []).append(self._run(name, Arrivals.POISSON, rate))
            if name != HEADWAY:
                measured.at_their_rate.setdefault(name, []).append(self._run(HEADWAY, Arrivals.POISSON, rate))

    def _run(self, name: str, arrivals: Arrivals, rate: float | None) -> Run:
        due_at = arrival_times(self.requests, arrivals, rate)
        run = {"rate": rate, **build_report(self.systems[name].run(self.requests, due_at))}
        if not run["num_completed"]:
            raise BenchError(f"{name} completed none of the requests: {dict(run['finish_reasons'])}")
        how = "all at once" if rate is None else f"{rate:.2f} requests/s"
        self.say(f"  {name}, {how}: {run['output_tokens_per_s']:.1f} output tokens/s")
        return run


def capacity(burst: Mapping[str, Any]) -> float:
    """Requests per second that a system got through when it had them all."""
    return float(burst["num_completed"] / burst["duration_seconds"])
