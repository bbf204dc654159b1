"""Publishing to a stream, made for thousands of small records in a second.

nats-py's own ``js.publish`` does the same with a random inbox, a timer, a wrapped future and a decoded document for
each message: half of what a record costs. Here all acknowledgements of a connection come to one subscription, messages
are told apart by a count, and one timer watches over all of them, since all wait equally long.
What it raises is what ``js.publish`` raises, and `PermissionViolation` besides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from itertools import count
from typing import Any

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError

from headway.broker.permissions import PermissionClient

STATUS_HEADER = "Status"
NO_RESPONDERS = "503"


class _Answer(msgspec.Struct):
    """Of the stream, as far as it matters here."""

    seq: int | None = None
    error: dict[str, Any] | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode


class AckedPublisher:
    """All acknowledged publishes of one connection. Not for several threads."""

    def __init__(self, client: PermissionClient, timeout_seconds: float) -> None:
        """``timeout_seconds`` for an acknowledgement, the same for all."""
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._inbox: str | None = None
        """Prefix of the subjects on which acknowledgements come, once we listen there."""
        self._tokens = map(str, count())
        self._waiting: dict[str, asyncio.Future[int]] = {}
        self._deadlines: deque[tuple[float, str]] = deque()
        """Event-loop time and token, in the order of both; some have been answered already."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_waiting(self) -> int:
        """Publishes that have no answer yet."""
        return len(self._waiting)

    async def publish(self, subject: str, data: bytes, headers: dict[str, str]) -> int:
        """The sequence in the stream. Raises ``APIError``, ``NoStreamResponseError``, ``nats.errors.Error``."""
        inbox = self._inbox or await self._listen()
        token, answer = next(self._tokens), asyncio.Future[int]()
        refuse = partial(self._refuse, answer, subject)
        self._client.expect_answer(subject, refuse)
        self._waiting[token] = answer
        try:
            await self._client.publish(subject, data, reply=inbox + token, headers=headers)
            self._watch(token)
            return await answer
        finally:
            del self._waiting[token]
            self._client.expect_no_answer(subject, refuse)

    async def _listen(self) -> str:
        """nats-py subscribes again after a reconnect."""
        inbox = f"{self._client.new_inbox()}."
        await self._client.subscribe(f"{inbox}*", cb=self._take)
        self._inbox = inbox
        return inbox

    async def _take(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is None or answer.done():
            return
        try:
            answer.set_result(_sequence(message))
        except nats.errors.Error as exc:
            answer.set_exception(exc)

    def _refuse(self, answer: asyncio.Future[int], subject: str) -> None:
        _fail(answer, self._client.violation(subject))

    def _watch(self, token: str) -> None:
        loop = asyncio.get_running_loop()
        while self._deadlines and self._deadlines[0][1] not in self._waiting:
            self._deadlines.popleft()
        self._deadlines.append((loop.time() + self._timeout_seconds, token))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_seconds, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._deadlines and self._deadlines[0][0] <= loop.time():
            if (answer := self._waiting.get(self._deadlines.popleft()[1])) is not None:
                _fail(answer, nats.errors.TimeoutError())
        self._timer = loop.call_at(self._deadlines[0][0], self._expire) if self._deadlines else None


def _sequence(message: Msg) -> int:
    """Raises what the answer says."""
    if message.headers and message.headers.get(STATUS_HEADER) == NO_RESPONDERS:
        raise NoStreamResponseError
    try:
        answer = _decode_answer(message.data)
    except msgspec.MsgspecError as exc:
        raise APIError(description=f"not an acknowledgement: {exc}") from exc
    if answer.error is not None:
        APIError.from_error(answer.error)
    if answer.seq is None:
        raise APIError(description="an acknowledgement without a sequence")
    return answer.seq


def _fail(answer: asyncio.Future[int], exc: nats.errors.Error) -> None:
    if not answer.done():
        answer.set_exception(exc)
