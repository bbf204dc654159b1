"""The engine child: ``python -m headway.engine.main --fd N``, started by `engine.process`.

It loads the model, and serves it in the loop of `engine.serve`.

The child ends when its parent does: the kernel kills it (Linux), and the end of the stream stops it anywhere. The
terminal's Ctrl-C, and its end, reach the whole group of processes, but what they mean is the parent's to decide.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from headway.core.errors import HeadwayError, SettingError
from headway.engine.frames import decode_start, encode_frame, read_frame
from headway.engine.messages import Event, Failed, Loading, WrongSetting
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from headway.engine.engine import Engine  # imports torch, which takes seconds

logger = logging.getLogger(__name__)

FAILED_STATUS = 1
LIBRARIES = ("huggingface_hub", "transformers")
PR_SET_PDEATHSIG = 1


def main() -> None:
    arguments = _arguments()
    _die_with(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket(fileno=arguments.fd) as connection, suppress(BrokenPipeError, ConnectionResetError):
        EngineChild(connection).run()


class EngineChild:
    """The child's end of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def run(self) -> None:
        """Returns when the parent has closed the stream; exits with status 1 on failure, having told the parent why.

        What went wrong is for the parent to log; what nobody has foreseen is logged here too, with its traceback.
        """
        try:
            engine = self._load()
            if engine is not None:
                from headway.engine.serve import EngineLoop  # imports torch

                EngineLoop(engine, self._connection).run()
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            if not isinstance(error, HeadwayError):
                logger.exception("the engine failed")
            self._send(Failed(_explain(error), WrongSetting.of(error) if isinstance(error, SettingError) else None))
            sys.exit(FAILED_STATUS)

    def _load(self) -> Engine | None:
        """None if the parent is gone before it said what to load."""
        frame = read_frame(self._connection)
        if frame is None:
            return None
        start = decode_start(frame)
        configure_logs(TelemetryConfig(log_level=start.log_level, log_format=start.log_format))
        self._send(Loading("importing torch and transformers"))
        from headway.engine.build import build_engine  # takes seconds: say so first

        _take_logs_over()
        engine = build_engine(start.engine, start.scheduler, lambda stage: self._send(Loading(stage)))
        self._send(Loading("rehearsing a step"))
        engine.rehearse()
        gc.collect()
        gc.freeze()  # a model is many objects that live for ever; a collection in a step need not look at them
        self._send(engine.ready)
        return engine

    def _send(self, event: Event) -> None:
        self._connection.sendall(encode_frame(event))


def _take_logs_over() -> None:
    """These libraries print through handlers of their own as well, so that everything would be said twice."""
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True


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
