"""What the engine's processes have in common: how they begin, and end with whoever started them. No torch here."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

FAILED_STATUS = 1
LIBRARIES = ("huggingface_hub", "transformers")
PR_SET_PDEATHSIG = 1


class SharedSocket(socket.socket):
    """A socket that several threads may send on: what one of them sends goes out in one piece."""

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._lock = threading.Lock()

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        with self._lock:
            super().sendall(data, flags)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        sys.exit(0)


def ignore_signals(*names: str) -> None:
    for name in names:
        signal.signal(signal.Signals[name], signal.SIG_IGN)


def leave(status: int) -> NoReturn:
    """End this process without the farewells of libraries: NCCL's communicators may wait for each other for good, even
    when they are given up. The system takes back all that they hold."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def take_logs_over() -> None:
    """These libraries print through handlers of their own as well, so that everything would be said twice."""
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True


def how_it_ended(status: int) -> str:
    """In words, after ``it``; ``status`` as subprocess has it."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
