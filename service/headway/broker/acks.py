"""Many acknowledgements in one go.

A request per acknowledgement costs a future, a timeout and a turn of the event loop each. Here they are published one
behind the other, all with a reply subject below one inbox, and only the last answer wakes whoever waits. What is not
confirmed, for whatever reason, is left to a request of its own, which tells the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from headway.broker.connection import Connection
from headway.broker.errors import translated

NO_RESPONDERS = "503"


class Acknowledger:
    """One batch at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox = connection.client.new_inbox()
        self._subscription: Subscription | None = None
        self._num_sent = 0
        self._waiting: dict[str, str] = {}
        """By the subject of the answer: where the acknowledgement went. What is refused or late just stays here."""
        self._num_answers_due = 0
        self._answered = asyncio.Event()

    async def ack(self, replies: Iterable[str]) -> set[str]:
        """Acknowledges at these reply subjects of messages; returns those at which the server has confirmed it.

        Waits for the others as long as for any answer of NATS. Raises `BrokerUnavailable`.
        """
        client, timeout_seconds = self._connection.client, self._connection.config.nats_timeout_seconds
        with translated("acknowledge jobs"):
            if self._subscription is None:
                self._subscription = await client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
            sent = {self._next_subject(): reply for reply in replies}
            self._waiting, self._num_answers_due = dict(sent), len(sent)
            self._answered.clear()
            for subject, reply in sent.items():
                await client.publish(reply, b"+ACK", reply=subject)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds if sent else 0):
                await self._answered.wait()
        return set(sent.values()) - set(self._waiting.values())

    async def close(self) -> None:
        """Hear no more answers; another batch would listen anew."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._connection.client.is_closed:
            with translated("close the acknowledgements"):
                await subscription.unsubscribe()

    def _next_subject(self) -> str:
        self._num_sent += 1
        return f"{self._inbox}.{self._num_sent}"

    async def _on_answer(self, message: Msg) -> None:
        """A late one of an earlier batch is nobody's any more."""
        if message.subject not in self._waiting:
            return
        if (message.headers or {}).get("Status") != NO_RESPONDERS:
            del self._waiting[message.subject]
        self._num_answers_due -= 1
        if self._num_answers_due <= 0:
            self._answered.set()
