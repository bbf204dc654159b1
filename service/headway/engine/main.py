"""The engine child: ``python -m headway.engine.main --fd N``, started by `engine.process`.

    reader thread ── commands ──▶ queue ──▶ main loop: apply commands, step, send one report ── frames ──▶ parent

The main loop waits while there is nothing to do and never waits while there is. The child ends when its parent does:
the kernel kills it (Linux), and the end of the stream stops it anywhere. The terminal's Ctrl-C reaches the whole
group of processes, but what it means is the parent's to decide.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from headway.core.errors import HeadwayError
from headway.engine.frames import decode_command, decode_start, encode_frame, read_frame
from headway.engine.messages import Command, Event, Failed, Loading

if TYPE_CHECKING:
    from headway.engine.engine import Engine  # imports torch, which takes seconds

logger = logging.getLogger(__name__)

FAILED_STATUS = 1
PR_SET_PDEATHSIG = 1
STALLED_SECONDS = 0.01
"""Pause before a step is tried again that could compute nothing although there is work."""


def main() -> None:
    arguments = _arguments()
    _die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with socket.socket(fileno=arguments.fd) as connection, suppress(BrokenPipeError, ConnectionResetError):
        EngineChild(connection).run()


class EngineChild:
    """The child's end of the connection, and the loop that drives the engine."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        """None: the parent has closed the stream."""

    def run(self) -> None:
        """Returns when the parent has closed the stream; exits with status 1 on failure, having said why."""
        try:
            engine = self._load()
            if engine is not None:
                self._serve(engine)
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            logger.error("the engine failed", exc_info=not isinstance(error, HeadwayError))
            self._send(Failed(_explain(error)))
            sys.exit(FAILED_STATUS)

    def _load(self) -> Engine | None:
        """None if the parent is gone before it said what to load."""
        frame = read_frame(self._connection)
        if frame is None:
            return None
        start = decode_start(frame)
        threading.Thread(target=self._read_commands, name="read-commands", daemon=True).start()
        self._send(Loading("importing torch and transformers"))
        from headway.engine.build import build_engine  # takes seconds: say so first

        engine = build_engine(start.engine, start.scheduler, lambda stage: self._send(Loading(stage)))
        gc.collect()
        gc.freeze()  # a model is many objects that live for ever; a collection in a step need not look at them
        self._send(engine.ready)
        return engine

    def _serve(self, engine: Engine) -> None:
        self._send(engine.step(time.monotonic()))  # nothing to do yet: says what there is room for
        is_stalled = False
        while True:
            for command in self._take_commands(wait_seconds=_wait_seconds(engine, is_stalled)):
                if command is None:
                    return
                engine.apply(command, time.monotonic())
            report = engine.step(time.monotonic())
            is_stalled = report.step is None
            self._send(report)

    def _take_commands(self, wait_seconds: float | None) -> list[Command | None]:
        """All commands that have come; if none has, the next one, waited for that long (None: for ever)."""
        commands: list[Command | None] = []
        with suppress(queue.Empty):
            commands.append(
                self._commands.get(timeout=wait_seconds) if wait_seconds != 0 else self._commands.get_nowait()
            )
            while True:
                commands.append(self._commands.get_nowait())
        return commands

    def _read_commands(self) -> None:
        while (frame := read_frame(self._connection)) is not None:
            self._commands.put(decode_command(frame))
        self._commands.put(None)

    def _send(self, event: Event) -> None:
        self._connection.sendall(encode_frame(event))


def _wait_seconds(engine: Engine, is_stalled: bool) -> float | None:
    if not engine.has_work:
        return None
    return STALLED_SECONDS if is_stalled else 0


def _explain(error: Exception) -> str:
    return str(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The engine child of a Headway worker; not started by hand.")
    parser.add_argument("--fd", type=int, required=True, help="the inherited socket")
    parser.add_argument("--parent", type=int, required=True, help="the process id of the worker")
    return parser.parse_args()


if __name__ == "__main__":
    main()
