"""One process that a test may do anything to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headway.broker.embedded import TRAMPOLINE

POLL_SECONDS = 0.01
STOP_SECONDS = 30.0


Condition = Callable[[], bool | Awaitable[bool]]


async def until(condition: Condition, seconds: float = 60.0, what: str = "a condition") -> None:
    """Polls, since processes and files have no event; raises ``TimeoutError`` that says what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            while not await _value(condition):  # noqa: ASYNC110 (processes and files have no event)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"waited {seconds:g} s for {what}") from None


async def _value(condition: Condition) -> bool:
    value = condition()
    return value if isinstance(value, bool) else await value


class Process:
    """Started at once; never outlives us (Linux). What it says goes into ``log_file``."""

    def __init__(self, command: Sequence[str], log_file: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log_file = log_file
        trampoline = (sys.executable, "-I", "-S", "-c", TRAMPOLINE, str(os.getpid()))
        with log_file.open("ab") as output:
            self._process = subprocess.Popen(
                [*trampoline, *command],
                env=clean_environ() | dict(environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def children(self) -> list[int]:
        """Process ids, in no order; empty once it has ended."""
        with suppress(OSError):
            tasks = Path(f"/proc/{self.pid}/task").iterdir()
            return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return []

    @property
    def said(self) -> str:
        return self.log_file.read_text(errors="replace")

    def kill(self) -> None:
        """``kill -9``: it gets no chance to say or do anything."""
        self.signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP: it stays, and does nothing until `resume`."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, as a pod gets it."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self, seconds: float = STOP_SECONDS) -> int:
        """The exit status, once it has ended."""
        await until(lambda: not self.is_running, seconds, f"the end of process {self.pid}")
        return self._process.wait()

    async def close(self) -> None:
        """However it is now, it is gone afterwards."""
        self.kill()
        await self.ended()


def clean_environ() -> dict[str, str]:
    """Ours without the settings that it may hold; one thread each, since there are many processes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
