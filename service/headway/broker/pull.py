"""Reads a pull consumer as a steady stream of messages, and notices when the consumer is gone.

nats-py's own ``fetch`` drops the statuses that matter to a queue leader: a deleted consumer looks like an empty
one. Here one pull request is open at a time; it outlives the calls of `read`, so that no message waits for a
round trip, and a heartbeat of the server tells an idle pull from a lost one (after a reconnect, say).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque

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
NANOSECONDS = 1_000_000_000


class ConsumerGone(Exception):
    """The consumer was deleted."""


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

    async def read(self, max_messages: int, timeout_seconds: float) -> list[Msg]:
        """What is there, or the first that comes within the timeout; empty if nothing came.

        Raises `ConsumerGone`; `BrokerUnavailable` while the server cannot say whether the consumer exists.
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
        """Open the next pull if none is open, once it is known that the consumer still exists."""
        num_reconnects = self._connection.client.stats["reconnects"]
        if num_reconnects != self._num_reconnects:
            self._num_open, self._num_reconnects, self._must_check = 0, num_reconnects, True
        if self._must_check:
            await self._check()
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
        try:
            with translated("look at the consumer"):
                try:
                    await self._connection.js.consumer_info(self._stream, self._consumer)
                except NotFoundError as exc:
                    raise ConsumerGone(f"consumer {self._consumer} does not exist") from exc
        except BrokerUnavailable:
            self._num_open = 0
            raise
        self._must_check = False

    async def _on_message(self, message: Msg) -> None:
        """A job, which keeps its own subject, or a status, which names its pull and has no reply subject."""
        self._heard_at = _now()
        if message.reply:
            self._messages.append(message)
            self._num_open = max(0, self._num_open - 1)
        elif message.subject == f"{self._inbox}.{self._num_pulls}":
            self._on_status((message.headers or {}).get("Status", ""), (message.headers or {}).get("Description", ""))
        self._changed.set()

    def _on_status(self, status: str, description: str) -> None:
        """100 is a heartbeat; 404 and 408 end a pull that found little; 409 has many causes; 503: nobody is there."""
        if status == "100":
            return
        is_usual = status in ("404", "408") or description == "Batch Completed"
        self._was_refused = self._num_open == BATCH and not is_usual
        self._num_open = 0
        self._must_check = not is_usual
        if self._must_check:
            log.debug("pull of %s: %s %s", self._consumer, status, description)


def _now() -> float:
    return asyncio.get_running_loop().time()
