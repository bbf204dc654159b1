"""What can be measured, behind one interface: it is opened once, and then does the same work as often as it is asked.

Open systems stay idle between their runs, so that several of them can take turns on one machine: only what was
measured in turns can be compared.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from headway.core.errors import HeadwayError
from headway.engine.process import child_environment
from headway.settings import Settings
from loadtest.recording import Recording
from loadtest.requests import Request

Say = Callable[[str], None]


class BenchError(HeadwayError):
    """A system could not be started, or did not do the work."""


class Target(StrEnum):
    ENGINE = "engine"
    """The engine alone, in this process."""
    NATS = "nats"
    """The whole path: client, NATS, queue, worker, engine."""


class System(Protocol):
    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        """Send each request when it is due (seconds from the start) and return when all have ended. The recording has
        no steps where the system does not tell of any."""


@contextmanager
def open_target(target: Target, settings: Settings, say: Say) -> Iterator[System]:
    """Headway itself, warm when this returns."""
    if target is Target.ENGINE:
        yield _EngineSystem(settings, say)
        return
    system = _NatsSystem(settings, say)
    try:
        system.start()
        yield system
    finally:
        system.close()


class _EngineSystem:
    def __init__(self, settings: Settings, say: Say) -> None:
        os.environ.update(child_environment(settings.engine))  # before torch is loaded: the same threads as in a worker
        from headway.engine.build import build_engine

        self._engine = build_engine(settings.engine, settings.scheduler, say)

    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        from loadtest.engine_target import run_on_engine

        return run_on_engine(self._engine, requests, due_at)


class _NatsSystem:
    """Owns an event loop, which only turns while something runs."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings = settings
        self._say = say
        self._loop = asyncio.Runner()
        self._stack = AsyncExitStack()

    def start(self) -> None:
        self._loop.run(self._start())

    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        from loadtest.nats_target import run_on_nats

        return self._loop.run(run_on_nats(self._local, self._settings.engine.served_model, requests, due_at))

    def close(self) -> None:
        self._loop.run(self._stack.aclose())
        self._loop.close()

    async def _start(self) -> None:
        from headway.roles.local import LocalRole

        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-bench-"))
        self._local = await self._stack.enter_async_context(LocalRole(self._settings, Path(folder), on_stage=self._say))
