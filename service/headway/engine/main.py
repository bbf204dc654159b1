"""The engine child: ``python -m headway.engine.main --fd N``, started by `engine.process`.

It loads the model, and serves it in the loop of `engine.serve`. If the model is divided over several GPUs, it is rank 0
of the processes that compute it (`engine.parallel`).

The child ends when its parent does: the kernel kills it (Linux), and the end of the stream stops it anywhere. The
terminal's Ctrl-C, and its end, reach the whole group of processes, but what they mean is the parent's to decide.
"""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from headway.core.errors import HeadwayError
from headway.engine.child import FAILED_STATUS, SharedSocket, die_with, ignore_signals, leave, take_logs_over
from headway.engine.frames import decode_start, encode_frame, read_frame
from headway.engine.messages import Event, Failed, Loading
from headway.engine.parallel.other_ranks import OtherRanks
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from headway.engine.engine import Engine  # imports torch, which takes seconds

logger = logging.getLogger(__name__)

LOSS_SECONDS = 1.0
"""How long after a failure here another rank may turn out to have ended, which explains it better."""


def main() -> None:
    arguments = _arguments()
    die_with(arguments.parent)
    ignore_signals("SIGINT", "SIGHUP")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with SharedSocket(arguments.fd) as connection:
        EngineChild(connection).run()


class EngineChild:
    """The child's end of the connection."""

    def __init__(self, connection: SharedSocket) -> None:
        self._connection = connection
        self._others = OtherRanks(self._lost)

    def run(self) -> NoReturn:
        """Exits with status 0 when the parent has closed the stream, and with 1 on failure, having told the parent why.

        What went wrong is for the parent to log; what nobody has foreseen is logged here too, with its traceback.
        """
        status = 0
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._serve()
        except SystemExit:  # SIGTERM
            pass
        except Exception as error:
            self._tell(error)
            status = FAILED_STATUS
        if self._others.pids:
            self._others.kill()
            leave(status)
        sys.exit(status)

    def _serve(self) -> None:
        engine = self._load()
        if engine is not None:
            from headway.engine.serve import EngineLoop  # imports torch

            EngineLoop(engine, self._connection).run()
        self._others.stop()

    def _load(self) -> Engine | None:
        """None if the parent is gone before it said what to load."""
        frame = read_frame(self._connection)
        if frame is None:
            return None
        start = decode_start(frame)
        configure_logs(TelemetryConfig(log_level=start.log_level, log_format=start.log_format))
        if start.engine.tensor_parallel_size > 1:
            self._others.start(start)
        self._send(Loading("importing torch and transformers"))
        from headway.engine.build import build_engine  # takes seconds: say so first

        take_logs_over()
        engine = build_engine(start.engine, start.scheduler, lambda stage: self._send(Loading(stage)), self._others)
        self._send(Loading("rehearsing a step"))
        engine.rehearse()
        gc.collect()
        gc.freeze()  # a model is many objects that live for ever; a collection in a step need not look at them
        self._send(engine.ready)
        return engine

    def _tell(self, error: Exception) -> None:
        self._others.await_loss(LOSS_SECONDS)
        if not isinstance(error, HeadwayError):
            logger.error("the engine failed", exc_info=error)
        with suppress(OSError):
            self._send(Failed.of(error))

    def _lost(self, failed: Failed) -> NoReturn:
        """Another rank has ended. Called in a thread, while this one may be blocked for good."""
        with suppress(OSError):
            self._send(failed)
        leave(FAILED_STATUS)

    def _send(self, event: Event) -> None:
        self._connection.sendall(encode_frame(event))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The engine child of a Headway worker; not started by hand.")
    parser.add_argument("--fd", type=int, required=True, help="the inherited socket")
    parser.add_argument("--parent", type=int, required=True, help="the process id of the worker")
    return parser.parse_args()


if __name__ == "__main__":
    main()
