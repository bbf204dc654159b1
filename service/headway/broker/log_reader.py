"""Following the log of a job: every stored record once, in order, as it is stored.

    broker ──republish──▶ live buffer ──┐
                                        ├──▶ reader      records in sequence
    stream ──replay────▶ page ──────────┘

Live records come over a plain subscription to ``headway.results.<tenant>.<id>``, which only shows what was stored.
Such a subscription may lose messages (a reconnect, a late start, a reader too slow for its buffer), so each carries
its own stream sequence and the one before it in the same log: whatever does not follow on is taken from the stream
instead. Nothing that comes after a lost *last* record would show that gap, so the reader also looks into the stream
after a reconnect and whenever it has heard nothing for a while.

One subscription per job, not one for all of a tenant: that would bring every job of the tenant to every one of its
clients. A subscription costs the broker a few hundred bytes; a consumer per job would cost it a goroutine and, in a
cluster, a vote.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import NotFoundError

from headway.broker.backoff import Backoff
from headway.broker.connection import Connection
from headway.broker.errors import BrokerUnavailable, LogIncomplete, translated
from headway.broker.joblog import StoredRecord
from headway.broker.log_store import stored_record
from headway.broker.replay_service import read_log_page
from headway.broker.streams import RESULTS, log_subject, results_subject
from headway.core.job import JobKey
from headway.core.records import End

log = logging.getLogger(__name__)

MAX_BUFFERED_RECORDS = 1024
CHECK_SECONDS = 15.0
MAX_MISSES = 8
SEQUENCE_HEADER = "Nats-Sequence"
PREVIOUS_HEADER = "Nats-Last-Sequence"


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A republished record that nobody has looked into yet."""

    sequence: int
    previous: int
    """Stream sequence of the record before it in the same log; 0: it is the first."""
    message: Msg


class LogReader:
    """An async iterator over `StoredRecord`; ends behind the ``end`` record.

    ``max_buffered`` bounds the memory that a slow reader costs: what does not fit is dropped and read again from the
    stream once the reader gets there.
    """

    def __init__(
        self,
        connection: Connection,
        key: JobKey,
        max_buffered: int = MAX_BUFFERED_RECORDS,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self.key = key
        self._connection = connection
        self._max_buffered = max_buffered
        self._check_seconds = check_seconds
        self._subscription: Subscription | None = None
        self._live: deque[LiveRecord] = deque()
        self._page: deque[StoredRecord] = deque()
        self._news = asyncio.Event()
        self._backoff = Backoff()
        self._last_sequence = 0
        """Of the record that was given out last."""
        self._known_sequence = 0
        """Of the newest record that is known to be stored."""
        self._newest_live_sequence = 0
        self._must_look = False
        """There may be records that nobody has told us of."""
        self._num_misses = 0
        self._has_ended = False

    async def open(self, from_start: bool) -> None:
        """Begin to listen. ``from_start`` reads what is stored already; without it the log must be new."""
        self._must_look = from_start
        with translated(f"subscribe to the results of {self.key.tenant}/{self.key.id}"):
            self._subscription = await self._subscribe()

    async def close(self) -> None:
        """Stop listening; the iterator ends. Harmless twice."""
        self._has_ended = True
        self._news.set()
        await self.pause()

    async def pause(self) -> None:
        """Stop listening until `open`."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    def look_again(self) -> None:
        """Messages may have been lost (a reconnect): compare with the stream before going on."""
        self._must_look = True
        self._news.set()

    def __aiter__(self) -> LogReader:
        return self

    async def __anext__(self) -> StoredRecord:
        """Raises `LogIncomplete`, `RecordInvalid`, and `BrokerUnavailable` once the connection is closed for good."""
        while not self._has_ended:
            if (stored := self._next_at_hand()) is not None:
                return await self._give(stored)
            if self._must_look or self._last_sequence < self._known_sequence:
                await self._look()
            else:
                await self._wait()
        raise StopAsyncIteration

    def _next_at_hand(self) -> StoredRecord | None:
        """The record that follows on, from the page or else from the live buffer."""
        if self._page:
            return self._page.popleft()
        while self._live and not self._must_look:
            live = self._live.popleft()
            if live.previous == self._last_sequence:
                return stored_record(live.sequence, live.message.data, live.message.headers)
        return None

    async def _give(self, stored: StoredRecord) -> StoredRecord:
        if isinstance(stored.record, End):
            self._page.appendleft(stored)  # Stays at hand if the reader is cancelled while it unsubscribes.
            await self.pause()
            self._page.popleft()
            self._has_ended = True
        self._last_sequence = stored.sequence
        self._known_sequence = max(self._known_sequence, stored.sequence)
        return stored

    async def _subscribe(self) -> Subscription:
        """The subscription holds the reader weakly: one that its owner has forgotten ends with the next record."""
        weak_self = weakref.ref(self)

        async def on_message(message: Msg) -> None:
            if (reader := weak_self()) is not None:
                reader._take(message)
            else:
                await subscription.unsubscribe()

        subscription = await self._connection.client.subscribe(results_subject(self.key), cb=on_message)
        return subscription

    def _take(self, message: Msg) -> None:
        headers = message.headers or {}
        if SEQUENCE_HEADER not in headers:
            return  # Not republished by the stream, so not stored.
        live = LiveRecord(int(headers[SEQUENCE_HEADER]), int(headers[PREVIOUS_HEADER]), message)
        if live.sequence <= self._newest_live_sequence:
            self._must_look = True  # a stream that was made anew counts from the beginning
        self._newest_live_sequence = live.sequence
        self._known_sequence = max(self._known_sequence, live.sequence)
        if len(self._live) < self._max_buffered:
            self._live.append(live)
        self._news.set()

    async def _wait(self) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(self._check_seconds):  # ``wait_for`` would make a task of every record
                await self._news.wait()
        except TimeoutError:
            self._must_look = True

    async def _look(self) -> None:
        """Fetch what the stream holds behind the last record; after a failure, wait a little."""
        try:
            with translated(f"read the results of {self.key.tenant}/{self.key.id}"):
                if self._must_look:
                    await self._look_at_tail()
                if not self._must_look and self._last_sequence < self._known_sequence:
                    await self._look_at_page()
        except BrokerUnavailable as exc:
            if self._connection.client.is_closed:
                raise
            log.debug("%s; trying again", exc)
            self._must_look = True
            await self._backoff.pause()

    async def _look_at_tail(self) -> None:
        """One cheap question, which any replica may answer, whether there is anything new."""
        self._must_look = False
        try:
            tail = await self._connection.js.get_last_msg(RESULTS, log_subject(self.key), direct=True)
        except NotFoundError:
            if self._last_sequence < self._known_sequence:
                await self._miss()
            return
        if (tail.seq or 0) < self._last_sequence:
            return await self._miss()
        self._num_misses = 0
        self._known_sequence = max(self._known_sequence, tail.seq or 0)

    async def _miss(self) -> None:
        """Records are known that the stream does not have: a replica is behind, or the log has reached its age limit,
        or the stream is another one by now, made anew."""
        self._num_misses += 1
        if self._num_misses > MAX_MISSES:
            raise LogIncomplete(self.key) from None
        self._must_look = True
        await self._backoff.pause()

    async def _look_at_page(self) -> None:
        page = await read_log_page(self._connection, self.key, self._last_sequence + 1)
        self._page.extend(page)
        if page:
            self._backoff = Backoff()
        else:
            self._must_look = True
            await self._backoff.pause()
