"""The engine alone, in a process of its own: `loadtest.child` asks it to run workloads.

So it has the environment of a worker's engine from the start (torch's threads read it once), and leaves none of it,
and none of its threads and objects, to what is measured in turns with it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.engine.process import child_environment
from loadtest.child import Child, asked
from loadtest.progress import Watch, nobody
from loadtest.recording import Recording
from loadtest.workloads.plan import Plan
from loadtest.workloads.requests import Request


@dataclass(frozen=True, slots=True)
class _Run:
    requests: Sequence[Request]
    plan: Plan
    is_watched: bool


class EngineAlone:
    """The parent's side."""

    def __init__(self, child: Child, is_watched: bool) -> None:
        self._child = child
        self._is_watched = is_watched

    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        recording: Recording = self._child.ask(_Run(requests, plan, self._is_watched))
        return recording


@contextmanager
def open_engine(
    engine: EngineConfig, scheduler: SchedulerConfig, say: Callable[[str], None], watch: Watch = nobody
) -> Iterator[EngineAlone]:
    """Loaded when this returns. Raises `BenchError`."""
    child = Child("loadtest.targets.engine_child", say, child_environment(engine), watch)
    try:
        child.ask((engine, scheduler))
        yield EngineAlone(child, watch is not nobody)
    finally:
        child.close()


def main() -> None:
    with asked() as questions:
        engine_config, scheduling = questions.next()
        from headway.engine.build import build_engine  # takes seconds
        from loadtest.targets.engine_target import run_on_engine

        engine = build_engine(engine_config, scheduling, questions.stage)
        engine.rehearse()
        gc.collect()
        gc.freeze()  # as a worker's engine does
        questions.answer(engine.ready)
        while True:
            run: _Run = questions.next()
            watch = questions.note if run.is_watched else nobody
            questions.answer(run_on_engine(engine, run.requests, run.plan, watch=watch))
