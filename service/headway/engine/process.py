"""The engine child as the worker's I/O process sees it. No torch here, nor in anything this imports.

A crash of the engine (out of memory, a fault in a kernel) ends the child only: `events` raises, and the worker hands
the jobs back and starts another. The child has no terminal: what it prints goes to standard error, and it
logs as its parent does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress

from headway.core.errors import EngineError, HeadwayError, SettingError
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.cache_folder import compiler_environment
from headway.engine.child import how_it_ended
from headway.engine.config import Device, EngineConfig
from headway.engine.frames import Start, decode_event, encode_frame, receive_frame
from headway.engine.messages import Command, Event, Failed, Loading, Ready, StepReport
from headway.telemetry.logs import log_style

INTERPRETER = sys.executable
"""What runs the child. Tests of roles put one in its place that has loaded torch already."""
TERMINATE_SECONDS = 5.0
"""From SIGTERM to SIGKILL."""
_STDERR = 2
SPIN_COUNT = "2000"
"""Turns that an OpenMP thread spins for at the end of a parallel region before it sleeps: some microseconds. Where
torch divides a step's operators among its threads, regions follow closely, and to sleep and be woken between them costs
more than they do. Much longer, and a core that somebody else needs is spun away (docs/engine.md has the figures). The
native ops have helpers of their own, which need no such compromise."""


class EngineProcess:
    """One life of an engine child: `start`, then `send` and `events`, then `stop`. A new life is a new object."""

    def __init__(self, engine: EngineConfig, scheduler: SchedulerConfig) -> None:
        logs = log_style()
        self._start_frame = Start(engine, scheduler, logs.level, logs.format)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_stopping = False

    @property
    def pid(self) -> int | None:
        """None before `start`."""
        return None if self._process is None else self._process.pid

    async def start(self, on_loading: Callable[[str], None] = lambda stage: None) -> Ready:
        """Start the child and load the model. Raises `SettingError` for what another start will not mend, `EngineError`
        with the reason if it fails otherwise; if this is cancelled, the child is killed."""
        await self._spawn()
        self._write(self._start_frame)
        try:
            while True:
                match await self._receive():
                    case Loading(stage=stage):
                        on_loading(stage)
                    case Ready() as ready:
                        return ready
        except BaseException:
            await self.kill()
            raise

    def send(self, command: Command) -> None:
        """Never waits. Lost if the child is dead, which `events` tells."""
        self._write(command)

    async def events(self) -> AsyncGenerator[StepReport, None]:
        """Reports until `stop`. Raises `EngineError` when the child ends in any other way."""
        while True:
            try:
                event = await self._receive()
            except EngineError:
                if self._is_stopping:
                    return
                raise
            if isinstance(event, StepReport):
                yield event

    async def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the child, asking three times ever less kindly: end of stream, SIGTERM, SIGKILL. Harmless twice."""
        if self._process is None or self._writer is None:
            return
        self._is_stopping = True
        if self._writer.can_write_eof():
            with suppress(OSError):
                self._writer.write_eof()
        if not await self._has_ended(timeout_seconds):
            self._signal(signal.SIGTERM)
            if not await self._has_ended(TERMINATE_SECONDS):
                self._signal(signal.SIGKILL)
                await self._process.wait()
        self._writer.close()

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = await asyncio.create_subprocess_exec(
                *(INTERPRETER, "-P", "-m", "headway.engine.main"),  # -P: no module of the current folder
                *("--fd", str(theirs.fileno()), "--parent", str(os.getpid())),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR,
                env={**os.environ, **child_environment(self._start_frame.engine)},
            )
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            undo.pop_all()

    async def _receive(self) -> Event:
        assert self._reader is not None, "started"
        frame = await receive_frame(self._reader)
        if frame is None:
            raise await self._death()
        event = decode_event(frame)
        if isinstance(event, Failed):
            raise _failure(event)
        return event

    async def _death(self) -> EngineError:
        """Why the stream ended."""
        assert self._process is not None, "started"
        status = await self._process.wait()
        return EngineError(f"the engine child (process {self.pid}) {how_it_ended(status)}")

    def _write(self, message: Start | Command) -> None:
        assert self._writer is not None, "started"
        if not self._writer.is_closing():
            self._writer.write(encode_frame(message))

    async def _has_ended(self, timeout_seconds: float) -> bool:
        assert self._process is not None, "started"
        try:
            await asyncio.wait_for(self._process.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "started"
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> None:
        """End the child at once; for one that hangs."""
        assert self._process is not None, "started"
        assert self._writer is not None, "started"
        self._is_stopping = True
        self._signal(signal.SIGKILL)
        await self._process.wait()
        self._writer.close()


def _failure(event: Failed) -> HeadwayError:
    wrong = event.wrong_setting
    return EngineError(event.message) if wrong is None else SettingError(wrong.setting, wrong.value, wrong.fix)


def child_environment(config: EngineConfig) -> dict[str, str]:
    """What must be set before the child loads torch.

    OpenMP's threads spin between parallel regions by default until the next one comes: that takes the cores from the
    I/O process and from whatever else is on the machine, and a step then waits for them. Progress bars of libraries
    would be drawn through whatever the parent shows; `Loading` says what the start is busy with. And the compiler's
    folder is to be ours.
    """
    variables = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": SPIN_COUNT, "TOKENIZERS_PARALLELISM": "false"}
    variables["TQDM_DISABLE"] = "1"
    variables |= compiler_environment(config)
    if config.tensor_parallel_size > 1 and config.device == Device.CPU:
        variables["CUDA_VISIBLE_DEVICES"] = ""  # transformers divides a model over the GPUs that it sees
    if config.num_threads is not None:
        variables["OMP_NUM_THREADS"] = str(config.num_threads)
    return variables
