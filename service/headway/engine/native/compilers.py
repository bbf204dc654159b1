"""Runs compilers that end when we do: a build may be interrupted at any time, and each takes a core for seconds.

A compiler is several processes (the driver starts the compiler proper), so each is a process group of its own, which is
killed as a whole.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from threading import Lock
from typing import Self


class BuildFailedError(Exception):
    """There is no library, and why."""


class Compilers:
    """`run` may be called from any thread, inside ``with``; what still runs when that is left is killed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def run(self, command: list[str]) -> str:
        """Its output. Raises ``BuildFailedError`` with the first error that it names."""
        process = self._start(command)
        try:
            output, errors = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode:
            lines = errors.strip().splitlines() or [f"status {process.returncode}"]
            error = next((line for line in lines if "error" in line), lines[0])
            raise BuildFailedError(f"{command[0]} failed: {error}")
        return output

    def kill(self) -> None:
        """Those that run now; no other starts."""
        with self._lock:
            self._is_over = True
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._is_over:
                raise BuildFailedError("interrupted")
            try:
                process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
                )
            except OSError as exc:
                raise BuildFailedError(f"{command[0]} cannot be run: {exc}") from exc
            self._running.add(process)
            return process
