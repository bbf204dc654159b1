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
        except TimeoutError:
            self._out_of_patience(timeline, gives_up)
        except ServerRefused as refused:
            self.errors[str(refused)] += 1
            timeline.end(FinishReason.ERROR, self._now())
        except (StreamBroken, aiohttp.ClientError, OSError) as broken:
            # A stream may break behind the last piece, when the request has ended.
            if timeline.finish_reason is None:
                self.errors[_name(broken)] += 1

    async def _read(self, body: dict[str, Any], timeline: Timeline) -> None:
        async with aclosing(complete(self._session, self._url, body)) as pieces:
            async for piece in pieces:
                _note(piece, timeline, self._now())

    def _out_of_patience(self, timeline: Timeline, gives_up: bool) -> None:
        if timeline.finish_reason is not None:
            return
        if gives_up:
            timeline.has_given_up = True
            timeline.end(FinishReason.CANCELLED, self._now())
        else:
            self.errors[f"no end within {self._timeout_seconds:g} s"] += 1


def _note(piece: Piece, timeline: Timeline, now: float) -> None:
    num_before = timeline.num_tokens
    if piece.finish_reason is not None:
        timeline.receive(_num_new(piece, num_before), now)
        timeline.end(piece.finish_reason, now)
    elif timeline.finish_reason is None:
        timeline.receive(_num_new(piece, num_before), now)
    elif piece.num_tokens is not None:
        # What comes behind the end is the server's own count: a piece of text may have been several tokens, or none.
        timeline.num_tokens = piece.num_tokens
    timeline.num_prompt_tokens = piece.num_prompt_tokens or timeline.num_prompt_tokens


def _num_new(piece: Piece, num_before: int) -> int:
    return piece.num_new_tokens if piece.num_tokens is None else piece.num_tokens - num_before


def _name(error: BaseException) -> str:
    return str(error) if isinstance(error, StreamBroken) else type(error).__name__
