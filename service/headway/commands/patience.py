"""What a person is told while nothing comes: one line on stderr for each reason, and nothing on stdout."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import click

from headway.core.errors import BrokerError
from headway.core.job import JobKey

if TYPE_CHECKING:
    from headway.broker.client import Client
    from headway.core.status import QueueStatus

QUIET_SECONDS = 5.0
"""After so long without news people begin to wonder. It doubles while nothing comes: many may wait, and each asks."""
MAX_QUIET_SECONDS = 60.0
ASK_SECONDS = 2.0
"""For the queue to say how it is."""


class Patience:
    """Used in ``async with`` around a wait; whoever gets something calls `heard`.

    While all is well it says nothing, however long a model takes: only what keeps the answers away is worth a line.
    A tenant that may not ask the queue for its status is told no more than whether NATS is there.
    """

    def __init__(self, client: Client, model: str | None = None, job: JobKey | None = None) -> None:
        """``model``: of the jobs that are waited for, if it is known. ``job``: one that somebody submitted before, so
        that it may never have been."""
        self._client = client
        self._model = model
        self._job = job
        self._has_heard = False
        self._is_over = False
        self._news = asyncio.Event()
        self._said: set[str] = set()

    @property
    def has_heard(self) -> bool:
        """Whether anything has come at all."""
        return self._has_heard

    def heard(self) -> None:
        self._has_heard = True
        self._news.set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch(), name="patience")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True  # Libraries of Python 3.11 may swallow a cancellation that meets a result.
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        quiet_seconds = QUIET_SECONDS
        while not self._is_over:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_seconds):
                    await self._news.wait()
            if self._news.is_set():
                quiet_seconds = QUIET_SECONDS
                continue
            quiet_seconds = min(2 * quiet_seconds, MAX_QUIET_SECONDS)
            if (reason := await self._reason()) and not self._news.is_set():
                self._say(reason)

    async def _reason(self) -> str | None:
        """Why nothing comes, as far as we can know; None if there is nothing to say."""
        from headway.broker.errors import NoLeader

        state = self._client.connection_state()
        if not state.connected:
            return f"{state.reason}; nothing that was submitted is lost"
        try:
            reason = self._reason_of(await self._client.status(ASK_SECONDS))
        except NoLeader:
            reason = "no queue process is running"
        except BrokerError:
            reason = None
        return reason or self._reason_of_job()

    def _reason_of(self, status: QueueStatus) -> str | None:
        models = {worker.model for worker in status.workers if worker.is_connected}
        if self._model is not None and self._model not in models:
            return f"no worker of model {self._model} is connected"
        return None if models else "no worker is connected"

    def _reason_of_job(self) -> str | None:
        """Of a job that was never submitted nothing can ever come, and nobody can tell."""
        if self._job is None or self._has_heard:
            return None
        return f"nothing has come of {self._job.tenant}/{self._job.id} yet; Ctrl-C ends the waiting, not the job"

    def _say(self, reason: str) -> None:
        if reason in self._said:
            return
        self._said.add(reason)
        is_in_a_line = self._has_heard and sys.stdout.isatty()
        # A progress bar has put itself in the place of sys.stderr, which click's own ``err`` would not see.
        click.echo(("\n" if is_in_a_line else "") + f"headway: waiting: {reason}", file=sys.stderr)
