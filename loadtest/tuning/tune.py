"""`headway tune`: which settings of the scheduler give the most throughput on this machine and keep a goal.

One engine stays loaded in a process of its own, and its scheduler changes from run to run, so a candidate costs
seconds. `loadtest.tuning.search` chooses them, `loadtest.tuning.stress` measures each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.settings import Settings
from loadtest.machine import describe_machine
from loadtest.targets.engine_child import EngineAlone, open_engine
from loadtest.tuning.knobs import Candidate, Goal, Knobs, Run
from loadtest.tuning.search import Limits, Search, TimeIsUp, Watch
from loadtest.tuning.stress import stress
from loadtest.workloads.requests import Request

FIRST_BATCH = 8
"""From which the search doubles, or halves."""
WARM_UP_SECONDS = 1.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TuneOptions:
    workload: str
    """Its name."""
    requests: Callable[[int], Sequence[Request]]
    """For a vocabulary of so many tokens."""
    goal: Goal
    minutes: float = 10.0
    """After which no further run begins."""
    run_seconds: float = 5.0
    """Of a run, beside its warm-up."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found. ``is_complete``: the search came to its end; else time was up, or somebody interrupted it."""

    workload: str
    goal: Goal
    candidates: Sequence[Candidate]
    best: Candidate | None
    is_complete: bool
    seconds: float
    machine: dict[str, object]
    model: str


@contextmanager
def tune(options: TuneOptions, settings: Settings, say: Say, watch: Watch) -> Iterator[Tuned]:
    """Gives what was found when the search is over, by itself or by ``KeyboardInterrupt``.

    The engine ends with the block, since that may take as long as a run: whoever does not want to wait for it loses
    nothing that the block has written. Raises ``HeadwayError`` for what cannot be run.
    """
    scheduler = comparable(settings.scheduler)
    started = time.monotonic()
    with open_engine(settings.engine, scheduler, say) as engine:
        stressed = _Stressed(engine, scheduler, options, options.requests(engine.ready.vocab_size))
        search = Search(stressed.run, options.goal, options.limits, watch)
        try:
            is_complete = search.run(stressed.first())
        except KeyboardInterrupt:
            say("interrupted: this is what was found so far")
            is_complete = False
        yield Tuned(
            workload=options.workload,
            goal=options.goal,
            candidates=list(search.candidates.values()),
            best=search.best,
            is_complete=is_complete,
            seconds=time.monotonic() - started,
            machine=describe_machine(),
            model=settings.engine.model,
        )


def comparable(scheduler: SchedulerConfig) -> SchedulerConfig:
    """Requests come again and again, so with shared prefixes they would cost less each time."""
    return replace(scheduler, prefix_sharing=PrefixSharing.OFF, batching=Batching.CONTINUOUS)


class _Stressed:
    """The engine, measured until the time is up."""

    def __init__(
        self, engine: EngineAlone, scheduler: SchedulerConfig, options: TuneOptions, requests: Sequence[Request]
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._options = options
        self._requests = requests
        self._ends_at = time.monotonic() + 60.0 * options.minutes

    def first(self) -> Knobs:
        """A small batch with the tokens and the chunk that were given, or the device's. Warms the engine up."""
        effective = self._engine.reschedule(self._scheduler)
        num_seqs = min(FIRST_BATCH, self._options.limits.max_num_seqs)
        knobs = Knobs(num_seqs, effective.num_step_tokens, effective.num_chunk_tokens)
        self._stress(knobs, WARM_UP_SECONDS)
        return knobs

    def run(self, knobs: Knobs) -> Run:
        if time.monotonic() >= self._ends_at:
            raise TimeIsUp
        return self._stress(knobs, self._options.run_seconds)

    def _stress(self, knobs: Knobs, seconds: float) -> Run:
        return self._engine.call(stress, knobs.apply(self._scheduler), self._requests, self._options.goal, seconds)
