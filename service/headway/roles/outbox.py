"""What goes out to the workers, and in which order.

Everything is sent at once, in the order of the leader's decisions. Only a grant whose payload has to be fetched (the
queue holds payloads up to a budget) takes time, and holds back no more than it must: the later grants of its own
stream, since a worker takes rising grant numbers only, and what is said on that stream about one of these jobs. The
payloads of the grants behind it are fetched meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from headway.broker.errors import BrokerUnavailable, MessageMissing
from headway.core.job import JobKey
from headway.core.lease_actions import Drop, Send
from headway.core.lease_messages import CancelJob, Grant, LeaderMessage, Recall
from headway.core.outstanding import OutstandingJob
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock
from headway.telemetry.logs import job_fields

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
MAX_FETCHES = 16
"""Payloads that are on their way to one stream, or here before their turn."""

AboutJob = Grant | Recall | CancelJob


class Streams(Protocol):
    """The `LeaseServer`: never waits, and loses what is sent to a stream that is gone."""

    def send(self, stream: int, message: LeaderMessage) -> None: ...

    def drop(self, stream: int, reason: str) -> None: ...


@dataclass(slots=True)
class _Late:
    """A message that waits for its turn."""

    message: AboutJob
    fetching: asyncio.Task[bytes] | None = None
    """Of a grant, once it has begun."""


class Outbox:
    """One leader's messages to all its workers.

    ``find`` gives the job of a grant, ``get_payload`` reads it from the stream by its sequence, ``granted`` hears of
    every grant that goes out and returns its traceparent.
    """

    def __init__(
        self,
        streams: Streams,
        find: Callable[[JobKey], OutstandingJob | None],
        get_payload: Callable[[int], Awaitable[bytes]],
        granted: Callable[[int, OutstandingJob, Grant], str],
        supervisor: Supervisor,
        clock: WallClock,
    ) -> None:
        self._streams = streams
        self._find = find
        self._get_payload = get_payload
        self._granted = granted
        self._supervisor = supervisor
        self._clock = clock
        self._late: dict[int, deque[_Late]] = {}
        """By stream: a grant whose payload is on its way, and what waits behind it."""

    def put(self, action: Send | Drop) -> None:
        """Returns at once."""
        stream = action.stream
        if isinstance(action, Drop):
            self._streams.drop(stream, action.reason)
        elif isinstance(action.message, Grant | Recall | CancelJob) and self._must_wait(stream, action.message):
            self._put_late(stream, action.message)
        else:
            self._send(stream, action.message)

    def _must_wait(self, stream: int, message: AboutJob) -> bool:
        late = self._late.get(stream, ())
        if isinstance(message, Grant):
            return bool(late) or self._payload(message) is None
        return any(before.message.key == message.key for before in late)

    def _put_late(self, stream: int, message: AboutJob) -> None:
        if stream in self._late:
            self._late[stream].append(_Late(message))
            return
        self._late[stream] = deque([_Late(message)])
        self._supervisor.spawn(f"late grants of stream {stream}", self._send_late(stream))

    async def _send_late(self, stream: int) -> None:
        late = self._late[stream]
        try:
            while late:
                self._fetch_ahead(late)
                first = late[0]
                self._send(stream, first.message, await first.fetching if first.fetching else None)
                late.popleft()
        finally:
            _cancel(late)
            del self._late[stream]

    def _fetch_ahead(self, late: Iterable[_Late]) -> None:
        """One after the other, each fetch would cost the worker a round trip to NATS."""
        for each in islice(late, MAX_FETCHES):
            if each.fetching is None and isinstance(each.message, Grant):
                each.fetching = asyncio.create_task(self._fetch(each.message), name="leader:fetch a payload")

    def _send(self, stream: int, message: LeaderMessage, payload: bytes | None = None) -> None:
        if isinstance(message, Grant):
            message = self._complete(stream, message, payload)
        self._streams.send(stream, message)

    def _payload(self, grant: Grant) -> bytes | None:
        """None: not held here (any more)."""
        outstanding = self._find(grant.key)
        return outstanding.job.payload if outstanding else None

    async def _fetch(self, grant: Grant) -> bytes:
        """A job that was deleted from the stream is granted empty: its worker ends it as rejected, so that its client
        hears something."""
        while (payload := self._payload(grant)) is None:
            try:
                return await self._get_payload(grant.stream_sequence)
            except MessageMissing:
                log.error("the job was deleted from the stream before it ran", extra=job_fields(grant.key))
                return b""
            except BrokerUnavailable as exc:
                log.warning("%s; trying again", exc)
                await asyncio.sleep(RETRY_SECONDS)
        return payload

    def _complete(self, stream: int, grant: Grant, payload: bytes | None) -> Grant:
        """The grant as it goes out now: with its payload, its trace, and the seconds that are left."""
        outstanding = self._find(grant.key)
        if outstanding is None:
            return replace(grant, payload=payload or b"")
        job = outstanding.job
        return replace(
            grant,
            payload=(job.payload or b"") if payload is None else payload,
            deadline_seconds=None if job.expires_at is None else max(0.0, job.expires_at - self._clock.now()),
            traceparent=self._granted(stream, outstanding, grant),
        )


def _cancel(late: Iterable[_Late]) -> None:
    for each in late:
        if each.fetching is not None:
            each.fetching.cancel()
