"""Rank 0's hold on the other ranks: it starts them, speaks to them, hears when one ends, and ends them. No torch here.

None of them outlives rank 0: the kernel kills them with it (Linux), and the end of their stream stops those that wait
for a step anywhere. If one of them ends first, rank 0 may be blocked in a collective for good, so a thread per rank
waits for that and calls ``on_lost``, which ends the process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from headway.engine.child import how_it_ended
from headway.engine.frames import Start, decode_event, encode_frame, frame, read_frame
from headway.engine.messages import Failed

STOP_SECONDS = 5.0
"""For ranks that wait for a step to notice the end of their stream."""
HOST = "127.0.0.1"
"""Where the ranks meet."""


@dataclass(frozen=True, slots=True)
class _OtherRank:
    number: int
    process: subprocess.Popen[bytes]
    connection: socket.socket

    @property
    def name(self) -> str:
        return f"rank {self.number} (process {self.process.pid})"


class OtherRanks:
    """Ranks 1 to n-1; none of them before `start`, nor where a model is not divided."""

    def __init__(self, on_lost: Callable[[Failed], None]) -> None:
        self._on_lost = on_lost
        """Called once, in another thread, if a rank ends that should not; the others are killed too."""
        self._ranks: list[_OtherRank] = []
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_ending = False
        self._is_lost = threading.Event()

    @property
    def pids(self) -> list[int]:
        return [rank.process.pid for rank in self._ranks]

    def start(self, start: Start) -> None:
        """One process for each rank but this one. They wait for rank 0 to `join` at `take_listener`'s socket."""
        self._listener = socket.create_server((HOST, 0))
        port = self._listener.getsockname()[1]
        for number in range(1, start.engine.tensor_parallel_size):
            self._ranks.append(_spawn(number, port))
        for rank in self._ranks:
            with suppress(OSError):  # it is dead already, which its thread tells
                rank.connection.sendall(encode_frame(start))
            threading.Thread(target=self._watch, args=(rank,), name=f"rank-{rank.number}", daemon=True).start()

    def take_listener(self) -> socket.socket:
        """The socket at which the ranks look for each other; who takes it closes it."""
        assert self._listener is not None, "started"
        listener, self._listener = self._listener, None
        return listener

    def announce(self, header: bytes) -> None:
        """Tell all ranks what comes. Raises ``OSError`` if one is gone."""
        data = frame(header)
        for rank in self._ranks:
            rank.connection.sendall(data)

    def await_loss(self, timeout_seconds: float) -> None:
        """After an error here: if one of them has ended too, that is the cause, and ``on_lost`` has the word."""
        if self._ranks:
            self._is_lost.wait(timeout_seconds)

    def stop(self) -> None:
        """Let ranks that wait for a step end by themselves; whoever does not is killed."""
        self._close()
        for rank in self._ranks:
            with suppress(subprocess.TimeoutExpired):
                rank.process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Harmless twice."""
        self._close()
        for rank in self._ranks:
            rank.process.kill()
        for rank in self._ranks:
            rank.process.wait()

    def _close(self) -> None:
        with self._lock:
            self._is_ending = True
        for rank in self._ranks:
            with suppress(OSError):  # it is closed already
                rank.connection.shutdown(socket.SHUT_RDWR)
        if self._listener is not None:
            self._listener.close()

    def _watch(self, rank: _OtherRank) -> None:
        with rank.connection:  # nothing is announced to a rank that ends
            body = read_frame(rank.connection)
        event = None if body is None else decode_event(body)
        if isinstance(event, Failed):
            failed = Failed(f"{rank.name}: {event.message}", event.wrong_setting)
        else:
            failed = Failed(f"{rank.name} {how_it_ended(rank.process.wait())}")
        with self._lock:
            if self._is_ending:
                return
            self._is_ending = True
        for other in self._ranks:
            other.process.kill()
        self._on_lost(failed)
        self._is_lost.set()


def _spawn(number: int, port: int) -> _OtherRank:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "headway.engine.parallel.rank"),  # -P: no module of the current folder
                *("--rank", str(number), "--port", str(port)),
                *("--fd", str(theirs.fileno()), "--parent", str(os.getpid())),
            ],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
        )
    return _OtherRank(number, process, ours)
