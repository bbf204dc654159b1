"""The background tasks of one process: named, watched, and ended together.

A task that fails ends the whole role with its error, because half a role is worse than a restart; whatever may
fail and go on handles its own errors. Shutdown is the role's business: it stops its parts in order and then calls
`close`, which cancels what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Iterator
from typing import Any

from headway.core.errors import HeadwayError

log = logging.getLogger(__name__)

CANCEL_SECONDS = 0.5
MAX_CANCELLATIONS = 20


class Supervisor:
    """Owns the tasks of one role. Not thread-safe: used from one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs ``work`` until it returns; if it raises, `run_until` raises the same."""
        task = asyncio.create_task(work, name=f"{self._name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def has_failed(self) -> bool:
        return self._failure.done()

    async def run_until(self, event: asyncio.Event) -> None:
        """Waits for ``event``; raises the first error of any task."""
        waiting = asyncio.create_task(event.wait(), name=f"{self._name}:event")
        try:
            await asyncio.wait((waiting, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._failure.done():
            self._failure.result()

    async def close(self) -> None:
        """Cancels the tasks that still run, and those that they begin meanwhile, and waits for them.

        Again and again, because a task can miss it: `asyncio.wait_for`, which nats-py waits by, swallows a
        cancellation that comes in the same moment as what it waits for (Python before 3.12).
        """
        for _ in range(MAX_CANCELLATIONS):
            tasks = tuple(self._tasks)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        else:
            log.error("%s: these tasks do not end: %s", self._name, [task.get_name() for task in self._tasks])
        if self._failure.done():
            self._failure.exception()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, HeadwayError):  # whoever runs the role says it to people
            log.debug("task %s failed: %s", task.get_name(), error)
        else:
            log.error("task %s failed: %s", task.get_name(), error, exc_info=error)
        if not self._failure.done():
            self._failure.set_exception(error)


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event, hurry: asyncio.Event | None = None) -> Iterator[None]:
    """Sets ``stop`` on the first SIGTERM or SIGINT and ``hurry`` on the second; after that they act as ever.

    SIGHUP (the terminal was closed) asks to stop too, but never to hurry: shell and kernel send it once each. A process
    that was started to outlive its terminal (``nohup``) goes on ignoring it.
    """
    loop = asyncio.get_running_loop()
    asked = [event for event in (stop, hurry) if event is not None]

    def hear() -> None:
        asked.pop(0).set()
        if not asked:
            forget()

    def hear_hangup() -> None:
        if not stop.is_set():
            hear()

    def forget() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear)
    outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    if not outlives_terminal:
        loop.add_signal_handler(signal.SIGHUP, hear_hangup)
    try:
        yield
    finally:
        forget()
        if not outlives_terminal:
            loop.remove_signal_handler(signal.SIGHUP)
