"""Ports that a process which is killed and started again finds free each time."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 12_000, 30_000
"""Below those that a kernel gives to outgoing connections (Linux: from 32768 on): of many processes that come and go,
one would sooner or later connect from the very port that another is about to listen on."""


def free_port() -> int:
    """Of the loopback interface; free for now, and soon taken by nobody else in all likelihood."""
    while True:
        port = random.randrange(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
