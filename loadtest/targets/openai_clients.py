"""The clients of a run against a server, and what they see.

Each request is a streamed completion on a connection of its own. A client that gives up closes its connection. What a
server refuses has failed; what never came to an end (a connection that broke, a server that did not answer in time) is
lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import aiohttp

from headway.core.job import FinishReason
from loadtest.progress import Watch
from loadtest.recording import Timeline
from loadtest.targets.openai_stream import Piece, ServerRefused, StreamBroken, complete
from loadtest.targets.sending import send_all, watched
from loadtest.workloads.plan import Due, Line, Plan
from loadtest.workloads.requests import Request


class Clients:
    """Of one run."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        requests: Sequence[Request],
        bodies: Sequence[dict[str, Any]],
        timeout_seconds: float,
    ) -> None:
        self.timelines = [Timeline.of(request) for request in requests]
        self.errors: Counter[str] = Counter()
        self._session = session
        self._url = url
        self._requests = requests
        self._bodies = bodies
        self._timeout_seconds = timeout_seconds
        self._started = 0.0

    async def send(self, plan: Plan, watch: Watch) -> None:
        self._started = time.monotonic()
        with watched(self.timelines, watch, self._now):
            await send_all(Line(plan), self._follow, self._now)

    def _now(self) -> float:
        return time.monotonic() - self._started

    async def _follow(self, due: Due) -> None:
        timeline = self.timelines[due.number]
        timeline.send(due.due_at, self._now())
        patience = self._requests[due.number].cancel_after_seconds
        gives_up = patience is not None and patience < self._timeout_seconds
        seconds = patience if patience is not None and gives_up else self._timeout_seconds
        try:
            async with asyncio.timeout(due.due_at + seconds - self._now()):
                await self._read(self._bodies[due.number], timeline)
        except ServerRefused as refused:
            self.errors[str(refused)] += 1
            timeline.end(FinishReason.ERROR, self._now())
        except (StreamBroken, aiohttp.ClientError) as broken:  # aiohttp's timeouts, too, are TimeoutErrors
            self._lose(timeline, _name(broken))
        except TimeoutError:
            self._out_of_patience(timeline, gives_up)
        except OSError as broken:
            self._lose(timeline, _name(broken))

    async def _read(self, body: dict[str, Any], timeline: Timeline) -> None:
        async with aclosing(complete(self._session, self._url, body)) as pieces:
            async for piece in pieces:
                _note(piece, timeline, self._now())

    def _out_of_patience(self, timeline: Timeline, gives_up: bool) -> None:
        if not gives_up:
            self._lose(timeline, f"no end within {self._timeout_seconds:g} s")
        elif timeline.finish_reason is None:
            timeline.has_given_up = True
            timeline.end(FinishReason.CANCELLED, self._now())

    def _lose(self, timeline: Timeline, error: str) -> None:
        """A stream may break behind its last piece, too, when its request has ended."""
        if timeline.finish_reason is None:
            self.errors[error] += 1


def _note(piece: Piece, timeline: Timeline, now: float) -> None:
    """A server that counts is believed: a piece of text may have been several tokens, or none."""
    if timeline.finish_reason is None:
        counted = piece.num_tokens
        timeline.receive(piece.num_new_tokens if counted is None else max(0, counted - timeline.num_tokens), now)
    if piece.num_tokens is not None:
        timeline.num_tokens = piece.num_tokens
    if piece.num_prompt_tokens is not None:
        timeline.num_prompt_tokens = piece.num_prompt_tokens
    if piece.finish_reason is not None:
        timeline.end(piece.finish_reason, now)


def _name(error: BaseException) -> str:
    return str(error) if isinstance(error, StreamBroken) else type(error).__name__
