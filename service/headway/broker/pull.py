"""Reads a pull consumer as a steady stream of messages, and notices when the consumer is gone.

nats-py's own ``fetch`` drops the statuses that matter to a queue leader: a deleted consumer looks like an empty
one. Here one pull request is open at a time; it outlives the calls of `read`, so that no message waits for a
round trip, and a heartbeat of the server tells an idle pull from a lost one (after a reconnect, say).

A message that the server sent into a connection which then broke counts as delivered: it would come again only after
the consumer's ``ack_wait``. The server numbers the deliveries of a consumer one by one, so what is missing shows: as a
gap before the next message, or in the consumer's own count, which is looked at after everything unusual and once per
idle pull. Either is `DeliveriesLost`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import NotFoundError

from headway.broker.connection import Connection
from headway.broker.errors import BrokerUnavailable, translated

log = logging.getLogger(__name__)

BATCH = 512
"""Messages of one pull: also how many may lie here unread."""
PULL_SECONDS = 30.0
HEARTBEAT_SECONDS = 2.0
MAX_MISSED_HEARTBEATS = 2
LOOK_SECONDS = 0.5
"""A reader that waits looks this often whether its pull still stands."""
BACK_OFF_SECONDS = 0.1
"""Before the next pull, after one that the server turned down."""
SETTLE_SECONDS = 1.0
"""Messages that are on their way come in such a time, one after the other, or never."""
NANOSECONDS = 1_000_000_000


class ConsumerGone(Exception):
    """The consumer was deleted."""


class DeliveriesLost(Exception):
    """The server has delivered messages that will not come here. Only a new consumer brings them again."""


class PullReader:
    """Messages of one consumer. Not for several readers at once.

    ``max_bytes`` bounds one pull; it must exceed the largest message of the stream.
    """

    def __init__(self, connection: Connection, stream: str, consumer: str, max_bytes: int) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        self._max_bytes = max_bytes
        self._inbox = connection.client.new_inbox()
        self._subscription: Subscription | None = None
        self._messages: deque[Msg] = deque()
        self._changed = asyncio.Event()
        self._num_pulls = 0
        self._num_open = 0
        """Messages that the open pull may still bring; 0: no pull is open."""
        self._heard_at = 0.0
        self._num_reconnects = connection.client.stats["reconnects"]
        """A pull does not survive its connection."""
        self._was_refused = False
        self._must_check = False
        self._num_delivered = 0
        """The consumer's own number of the last message that came in order."""
        self._loss = ""
        """Why this reader cannot go on; whatever comes now comes again."""

    async def read(self, max_messages: int, timeout_seconds: float) -> list[Msg]:
        """What is there, or the first that comes within the timeout; empty if nothing came.

        In the order of delivery, with nothing left out: what comes behind a gap is not given out. Raises
        `DeliveriesLost` in its place, for good; `ConsumerGone`; `BrokerUnavailable` while the server cannot say
        whether the consumer exists.
        """
        deadline = _now() + timeout_seconds
        await self._keep_pulling()
        while not self._messages and (left := deadline - _now()) > 0:
            await self._wait(left)
            await self._keep_pulling()
        return [self._messages.popleft() for _ in range(min(max_messages, len(self._messages)))]

    async def close(self) -> None:
        """Without interest in its inbox the server drops the open pull."""
        if self._subscription is not None and not self._connection.client.is_closed:
            with translated("close the pull"):
                await self._subscription.unsubscribe()
        self._subscription = None

    async def _wait(self, seconds: float) -> None:
        patience = HEARTBEAT_SECONDS * MAX_MISSED_HEARTBEATS
        try:
            async with asyncio.timeout(min(seconds, LOOK_SECONDS)):
                await self._changed.wait()
        except TimeoutError:
            if self._num_open and _now() - self._heard_at > patience:
                self._num_open, self._must_check = 0, True
        self._changed.clear()

    async def _keep_pulling(self) -> None:
        """Open the next pull if none is open, once it is known that the consumer still exists and nothing is lost."""
        num_reconnects = self._connection.client.stats["reconnects"]
        if num_reconnects != self._num_reconnects:
            self._num_open, self._num_reconnects, self._must_check = 0, num_reconnects, True
        if self._must_check:
            await self._check()
        if self._loss:
            if not self._messages:
                raise DeliveriesLost(self._loss)
            return
        if self._num_open or len(self._messages) >= BATCH:
            return
        if self._was_refused:
            self._was_refused = False
            await asyncio.sleep(BACK_OFF_SECONDS)
        await self._pull()

    async def _pull(self) -> None:
        request = {
            "batch": BATCH,
            "max_bytes": self._max_bytes,
            "expires": int(PULL_SECONDS * NANOSECONDS),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * NANOSECONDS),
        }
        with translated("pull jobs"):
            if self._subscription is None:
                self._subscription = await self._connection.client.subscribe(f"{self._inbox}.*", cb=self._on_message)
            self._num_pulls += 1
            self._num_open, self._heard_at = BATCH, _now()
            await self._connection.client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                json.dumps(request).encode(),
                reply=f"{self._inbox}.{self._num_pulls}",
            )

    async def _check(self) -> None:
        """Is the consumer there, and has everything come that it has delivered?"""
        self._must_check = False
        num_before = self._num_delivered
        num_sent = await self._ask_num_delivered()
        if num_sent < num_before:  # A replica may be a moment behind what it has sent.
            await asyncio.sleep(SETTLE_SECONDS)
            num_sent = await self._ask_num_delivered()
        if num_sent < num_before:
            self._lose(f"it counts {num_sent} deliveries, after {num_before}")
        elif not await self._has_come(num_sent):
            self._lose(f"{self._num_delivered} of {num_sent} deliveries came")

    async def _ask_num_delivered(self) -> int:
        try:
            with translated("look at the consumer"):
                try:
                    info = await self._connection.js.consumer_info(self._stream, self._consumer)
                except NotFoundError as exc:
                    raise ConsumerGone(f"consumer {self._consumer} does not exist") from exc
        except BrokerUnavailable:
            self._num_open, self._must_check = 0, True
            raise
        return info.delivered.consumer_seq if info.delivered else 0

    async def _has_come(self, number: int) -> bool:
        """Waits for messages that are on their way, as long as they come."""
        deadline = _now() + SETTLE_SECONDS
        while self._num_delivered < number and not self._loss:
            num_before = self._num_delivered
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            self._changed.clear()
            if self._num_delivered > num_before:
                deadline = _now() + SETTLE_SECONDS
            elif _now() >= deadline:
                return False
        return True

    async def _on_message(self, message: Msg) -> None:
        """A job, which keeps its own subject, or a status, which names its pull and has no reply subject."""
        self._heard_at = _now()
        if message.reply:
            self._take(message)
        elif message.subject == f"{self._inbox}.{self._num_pulls}":
            self._on_status((message.headers or {}).get("Status", ""), (message.headers or {}).get("Description", ""))
        self._changed.set()

    def _take(self, message: Msg) -> None:
        number = message.metadata.sequence.consumer
        if number != self._num_delivered + 1:
            self._lose(f"delivery {number} came after {self._num_delivered}")
        if self._loss:
            return
        self._num_delivered = number
        self._messages.append(message)
        self._num_open = max(0, self._num_open - 1)

    def _lose(self, reason: str) -> None:
        self._loss = self._loss or f"messages of {self._consumer} were lost on the way: {reason}"

    def _on_status(self, status: str, description: str) -> None:
        """100 is a heartbeat; 404 and 408 end a pull that found little; 409 has many causes; 503: nobody is there."""
        if status == "100":
            return
        is_complete = description == "Batch Completed"
        is_usual = status in ("404", "408") or is_complete
        self._was_refused = self._num_open == BATCH and not is_usual
        self._num_open = 0
        self._must_check = not is_complete
        if not is_usual:
            log.debug("pull of %s: %s %s", self._consumer, status, description)


def _now() -> float:
    return asyncio.get_running_loop().time()
