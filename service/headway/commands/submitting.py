"""Jobs on their way through a client: a bounded number at a time, outcomes in order, nothing left behind."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self

import click

from headway.broker.backoff import Backoff
from headway.broker.client import Client
from headway.broker.errors import Busy
from headway.broker.job_stream import JobStream
from headway.commands.job_output import Outcome
from headway.core.errors import HeadwayError
from headway.core.lease_actions import CancelAnswer, CancelOutcome

BUSY_SECONDS = 1.0
MAX_BUSY_SECONDS = 30.0
CANCEL_SECONDS = 5.0


class Submitter:
    """Submits jobs, and knows which have not ended.

    Used in ``async with``: if the block is left before its jobs have ended (by a signal, or because whoever reads the
    output has gone), they are cancelled, since nobody waits for them any more.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: set[str] = set()
        """Ids."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, HeadwayError):
            await self._cancel_all()

    async def _cancel_all(self) -> None:
        """And say how many, since nobody sees it otherwise."""
        asked = [self._client.cancel(job_id, CANCEL_SECONDS) for job_id in self._open]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        outcomes = [answer.outcome for answer in answers if isinstance(answer, CancelAnswer)]
        words = {
            "cancelled": outcomes.count(CancelOutcome.CANCELLED),
            "could not cancel": len(answers) - len(outcomes),
        }
        for verb, count in words.items():
            if count:
                click.echo(f"headway: {verb} {count} {'job' if count == 1 else 'jobs'}", err=True)

    async def start(self, fields: dict[str, Any]) -> JobStream:
        """A stream whose job is stored."""
        stream = self._client.submit(**fields)
        self._open.add(stream.id)
        await start(stream)
        return stream

    async def outcome(self, fields: dict[str, Any]) -> Outcome:
        """One job from its beginning to its end; an error is an outcome too.

        The queue may find after the fact that its tenant has too much in it. Then the job is offered again, but only if
        the id is ours to change.
        """
        backoff = Backoff(BUSY_SECONDS, MAX_BUSY_SECONDS)
        while True:
            outcome = await self._one_outcome(fields)
            if not isinstance(outcome.error, Busy) or "id" in fields:
                return outcome
            await backoff.pause()

    async def _one_outcome(self, fields: dict[str, Any]) -> Outcome:
        stream = self._client.submit(**fields)
        self._open.add(stream.id)
        try:
            await start(stream)
            outcome = Outcome(stream.key, await stream.result())
        except HeadwayError as error:
            outcome = Outcome(stream.key, None, error)
        self._open.discard(stream.id)
        return outcome

    async def outcomes(
        self, jobs: Iterable[dict[str, Any]], max_in_flight: int, on_outcome: Callable[[Outcome], None]
    ) -> None:
        """Every job; ``on_outcome`` is called for each in their order."""
        window: deque[asyncio.Task[Outcome]] = deque()
        async with asyncio.TaskGroup() as group:
            for fields in jobs:
                if len(window) >= max_in_flight:
                    on_outcome(await window.popleft())
                window.append(group.create_task(self.outcome(fields)))
            while window:
                on_outcome(await window.popleft())


async def start(stream: JobStream) -> None:
    """Have the job stored. While the queue is full, try again: the pauses grow and are jittered, so that many clients
    do not come back together."""
    backoff = Backoff(BUSY_SECONDS, MAX_BUSY_SECONDS)
    while True:
        try:
            await stream.start()
        except Busy:
            await backoff.pause()
        else:
            return
