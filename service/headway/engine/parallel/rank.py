"""A rank other than the first: ``python -m headway.engine.parallel.rank``, started by `engine.parallel.other_ranks`.

What ends the engine is rank 0's to decide: signals that a whole group of processes gets mean nothing here, and the end
of rank 0 is the end of this process, by its stream or by the kernel.
"""

from __future__ import annotations

import argparse
import gc
import logging
import socket
from contextlib import suppress
from typing import NoReturn

from headway.core.errors import HeadwayError
from headway.engine.child import FAILED_STATUS, die_with, ignore_signals, leave, take_logs_over
from headway.engine.frames import Start, decode_start, encode_frame, read_frame
from headway.engine.messages import Failed
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.logs import configure_logs

logger = logging.getLogger(__name__)


def main() -> None:
    arguments = _arguments()
    die_with(arguments.parent)
    ignore_signals("SIGINT", "SIGHUP", "SIGTERM")
    with socket.socket(fileno=arguments.fd) as connection:
        body = read_frame(connection)
        if body is not None:
            _run(decode_start(body), arguments.rank, arguments.port, connection)


def _run(start: Start, rank: int, port: int, connection: socket.socket) -> NoReturn:
    """Until the stream ends. A failure is told to rank 0."""
    configure_logs(TelemetryConfig(log_level=start.log_level, log_format=start.log_format))
    try:
        follow(start, rank, port, connection)
    except Exception as error:
        if not isinstance(error, HeadwayError):
            logger.exception("rank %d failed", rank)
        with suppress(OSError):
            connection.sendall(encode_frame(Failed.of(error)))
        leave(FAILED_STATUS)
    leave(0)


def follow(start: Start, rank: int, port: int, connection: socket.socket) -> None:
    """Load this rank's shard and run it on what rank 0 announces, until the stream ends."""
    from headway.engine.build import build_follower  # takes seconds: only now can it be told if that fails

    take_logs_over()
    follower = build_follower(start.engine, start.scheduler, rank, port)
    gc.collect()
    gc.freeze()  # as in the engine child
    while (header := read_frame(connection)) is not None:
        follower.run(header)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One of several processes of a Headway engine; not started by hand.")
    parser.add_argument("--rank", type=int, required=True, help="its number, from 1")
    parser.add_argument("--port", type=int, required=True, help="where the ranks find each other")
    parser.add_argument("--fd", type=int, required=True, help="the inherited socket")
    parser.add_argument("--parent", type=int, required=True, help="the process id of rank 0")
    return parser.parse_args()


if __name__ == "__main__":
    main()
