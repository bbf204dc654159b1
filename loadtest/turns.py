"""Systems take turns, round by round, with the same requests.

Where a schedule gives the rate itself, or has none, everybody gets the very same. Where it gives a load, a burst
measures what each system can take; then each gets its own process, at that share of its own capacity, and Headway gets
each opponent's too, so that both readings of "as loaded" are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from headway.core.errors import HeadwayError
from loadtest.comparison import median_run
from loadtest.errors import BenchError, reason
from loadtest.recording import Recording
from loadtest.report import build_report, without_details
from loadtest.targets.systems import Say, System
from loadtest.workloads.arrivals import BURST, Arrivals, Schedule
from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request, count_apart

LONG_SECONDS = 300.0
"""From which on a run says how long its requests take to come, which had better be meant."""
HEADWAY = "headway"
"""The target's name among the systems."""

Run = dict[str, Any]
"""A report of `loadtest.report`, with the ``rate`` of its arrivals (None: a burst)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs by system, in the order of the rounds."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    """As the schedule says."""
    bursts: dict[str, list[Run]] = field(default_factory=dict)
    """Those that measured capacity."""
    at_their_rate: dict[str, list[Run]] = field(default_factory=dict)
    """Headway's, by opponent, with the arrivals that the opponent had in the same round."""

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each system has told of itself."""
    stopped_by: str | None = None
    """Why there are fewer rounds than were wanted, if there are."""

    def add(self, round_: Measured) -> None:
        for mine, others in (
            (self.runs, round_.runs),
            (self.bursts, round_.bursts),
            (self.at_their_rate, round_.at_their_rate),
        ):
            for name, runs in others.items():
                mine.setdefault(name, []).extend(runs)

    def with_few_details(self) -> Measured:
        """Only each system's median run keeps what is long."""
        return Measured(
            {name: _of_median_alone(runs) for name, runs in self.runs.items()},
            {name: [without_details(run) for run in runs] for name, runs in self.bursts.items()},
            {name: [without_details(run) for run in runs] for name, runs in self.at_their_rate.items()},
            self.facts,
            self.stopped_by,
        )


@dataclass(frozen=True, slots=True)
class Turns:
    """``systems`` has Headway's target first."""

    systems: Mapping[str, System]
    requests: Sequence[Request]
    schedule: Schedule
    say: Say
    summarise: Callable[[Recording], Run] = build_report
    title: str = HEADWAY
    """What people are told that the target is."""
    rotates: bool = False
    """Whether no run asks what an earlier one has, for systems that remember."""
    _numbers: Iterator[int] = field(default_factory=count)

    def take(self, num_rounds: int) -> Measured:
        """Raises `BenchError` if a system does not answer, or completes nothing: there would be nothing to compare.
        Once a round is whole it counts, whatever becomes of a later one: an error or ``KeyboardInterrupt`` ends it."""
        measured = Measured(facts={name: getattr(system, "facts", {}) for name, system in self.systems.items()})
        for number in range(1, num_rounds + 1):
            self.say(f"round {number} of {num_rounds}")
            try:
                measured.add(self._round())
            except (KeyboardInterrupt, HeadwayError) as stop:
                if not measured.runs:
                    raise
                self.say(f"round {number} does not count: {reason(stop)}")
                return replace(measured, stopped_by=reason(stop))
        return measured

    def _round(self) -> Measured:
        if self.schedule.measures_capacity:
            return self._loaded_round()
        return Measured({name: [self._run(name, self.schedule.rate)] for name in self.systems})

    def _loaded_round(self) -> Measured:
        measured, rates = Measured(), dict[str, float]()
        for name in self.systems:
            burst = self._run_all_at_once(name)
            measured.bursts.setdefault(name, []).append(burst)
            rates[name] = self.schedule.load * capacity(burst)
        for name, rate in rates.items():
            measured.runs.setdefault(name, []).append(self._run(name, rate))
            if name != HEADWAY:
                measured.at_their_rate.setdefault(name, []).append(self._run(HEADWAY, rate))
        return measured

    def _run(self, name: str, rate: float | None) -> Run:
        num_apart = 0 if self.schedule.arrivals is Arrivals.TRACE else count_apart(self.requests)
        how = self.schedule.text(rate) + (f" and {num_apart} at times of their own" if num_apart else "")
        return self._measure(name, self.schedule.plan(self.requests, rate), rate, how)

    def _run_all_at_once(self, name: str) -> Run:
        """Those too that have a time of their own."""
        return self._measure(name, [0.0] * len(self.requests), None, BURST.text(None))

    def _measure(self, name: str, plan: Plan, rate: float | None, how: str) -> Run:
        number = next(self._numbers) if self.rotates else 0
        requests = [request.rotated(number) for request in self.requests]
        shown = self.title if name == HEADWAY else name
        self._say_if_long(plan)
        run = {"rate": rate, **self.summarise(self.systems[name].run(requests, plan))}
        if not run["num_completed"]:
            why = run["errors"] or run["finish_reasons"]
            counts = ", ".join(f"{number} {reason}" for reason, number in why.items())
            raise BenchError(f"{shown} completed none of the requests: {counts}")
        self.say(f"  {shown}, {how}: {run['output_tokens_per_s']:.1f} output tokens/s")
        return run

    def _say_if_long(self, plan: Plan) -> None:
        if not isinstance(plan, ClosedLoop) and max(plan) > LONG_SECONDS:
            self.say(f"  the last request comes after {max(plan) / 60:,.0f} minutes")


def _of_median_alone(runs: Sequence[Run]) -> list[Run]:
    median = median_run(runs)
    return [run if run is median else without_details(run) for run in runs]


def capacity(burst: Mapping[str, Any]) -> float:
    """Requests per second that a system got through when it had them all."""
    return float(burst["num_completed"] / burst["duration_seconds"])
