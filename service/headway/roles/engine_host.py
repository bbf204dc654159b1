"""Keeps an engine child alive: starts it, listens to it, and starts another when it dies or hangs.

Pauses between starts double from one second, so that an engine that cannot start, or dies in its first step, does not
burn the machine. After `MAX_FAILED_STARTS` in a row it counts as dead, and the liveness probe says so: a new process
may have a better machine. An engine that has started and computed (it rehearses a step) proves that starting works,
so whatever the jobs do to it afterwards is no reason to end the process.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Protocol

from headway.core.errors import EngineError, SettingError
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.engine.messages import Command, Ready, StepReport
from headway.engine.process import EngineProcess
from headway.settings.roles import RolesConfig

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
MAX_DOUBLINGS = 30
MAX_FAILED_STARTS = 5
STOP_SECONDS = 10.0
"""For an engine that serves to end its step."""


class EngineListener(Protocol):
    """Called in the event loop."""

    def engine_loading(self, stage: str) -> None: ...

    def engine_ready(self, ready: Ready) -> None: ...

    def engine_reported(self, report: StepReport) -> None: ...

    async def engine_gone(self, error: EngineError | SettingError, num_failed_starts: int) -> None:
        """An error that this raises ends `EngineHost.run`, and is for whoever runs it to report."""


class EngineHost:
    """One engine after the other, until `stop`."""

    def __init__(
        self, engine: EngineConfig, scheduler: SchedulerConfig, roles: RolesConfig, listener: EngineListener
    ) -> None:
        self._engine_config = engine
        self._scheduler_config = scheduler
        self._listener = listener
        self._max_pause_seconds = roles.max_restart_seconds
        self._step_timeout_seconds = roles.step_timeout_seconds
        self._process: EngineProcess | None = None
        self._num_failed_starts = 0
        """Lives in a row that ended before they served."""
        self._num_idle_lives = 0
        """Lives in a row that ended before they had done a step for a job."""
        self._patience: asyncio.Timeout | None = None
        """Runs while an engine that serves has something to do; None: none serves."""
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """Of the child that runs now."""
        return None if self._process is None else self._process.pid

    def send(self, command: Command) -> None:
        """Lost if no engine serves; `engine_gone` has told then."""
        if self._process is None or self._patience is None:
            return
        self._process.send(command)
        if self._patience.when() is None:
            self._expect_a_step()

    async def run(self) -> None:
        """Returns after `stop`."""
        while not self._is_stopping:
            try:
                await self._one_life()
            except (EngineError, SettingError) as exc:
                if self._is_stopping:
                    return
                await self._listener.engine_gone(exc, self._num_failed_starts)
                log.error("%s", exc)
            if not self._is_stopping:
                await asyncio.sleep(self._pause_seconds)

    @property
    def _pause_seconds(self) -> float:
        return min(self._max_pause_seconds, FIRST_PAUSE_SECONDS * 2 ** min(self._num_idle_lives, MAX_DOUBLINGS))

    async def stop(self) -> None:
        """An engine that is still loading would not listen for long: it is not asked, but ended."""
        self._is_stopping = True
        if self._process is not None:
            await self._process.stop(0.0 if self._patience is None else STOP_SECONDS)

    async def _one_life(self) -> None:
        self._process = process = EngineProcess(self._engine_config, self._scheduler_config)
        self._num_failed_starts += 1
        self._num_idle_lives += 1
        try:
            ready = await process.start(self._listener.engine_loading)
            self._num_failed_starts = 0
            await self._serve(process, ready)
        except TimeoutError as exc:
            await process.kill()
            raise EngineError(f"a step of the engine took longer than {self._step_timeout_seconds} s") from exc
        finally:
            self._process, self._patience = None, None
            await process.stop(STOP_SECONDS)

    async def _serve(self, process: EngineProcess, ready: Ready) -> None:
        """Until the engine ends. Raises ``TimeoutError`` for a step that does not."""
        async with asyncio.timeout(None) as self._patience, aclosing(process.events()) as reports:
            self._listener.engine_ready(ready)
            async for report in reports:
                if report.step is not None:
                    self._num_idle_lives = 0
                self._listener.engine_reported(report)
                self._patience.reschedule(None)
                if report.scheduler.num_running or report.scheduler.num_waiting:
                    self._expect_a_step()

    def _expect_a_step(self) -> None:
        assert self._patience is not None, "an engine serves"
        self._patience.reschedule(asyncio.get_running_loop().time() + self._step_timeout_seconds)
