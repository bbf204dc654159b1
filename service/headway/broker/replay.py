"""Reading what a stream holds of one subject, a page at a time.

A page comes from a short-lived push consumer that is filtered to the subject: one request, and the broker starts
to send. Only for those who are trusted with the whole stream: a consumer delivers wherever its maker says, with the
broker's own rights (`replay_service` reads for tenants).

The broker drops the consumer by itself when we stop listening, so nothing has to be deleted.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

import nats.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from headway.broker.connection import Connection
from headway.broker.errors import translated

PAGE_MESSAGES = 1024
IDLE_SECONDS = 5.0
"""The broker forgets the consumer this long after we stopped listening."""


async def read_page(
    connection: Connection, stream: str, subject: str, from_sequence: int, max_messages: int = PAGE_MESSAGES
) -> list[Msg]:
    """The stored messages of ``subject`` (may have wildcards) with a stream sequence ≥ ``from_sequence``.

    They are in order, with none left out between them. A page can end early (a slow or lost connection): ask again
    behind its last message. Raises `BrokerUnavailable` or `BrokerRefused`.
    """
    inbox = connection.client.new_inbox()
    receiver = _Receiver(max_messages)
    with translated(f"read {subject}"):
        subscription = await connection.client.subscribe(inbox, cb=receiver.take, max_msgs=max_messages)
        try:
            num_messages = await _ask(connection, stream, subject, inbox, from_sequence)
            await receiver.wait(num_messages, connection.config.nats_timeout_seconds)
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
    return receiver.messages


class _Receiver:
    """Collects what the consumer sends. A callback: waiting for single messages costs nats-py two tasks for each."""

    def __init__(self, max_messages: int) -> None:
        self.messages: list[Msg] = []
        self._max_messages = max_messages
        self._num_expected: int | None = None
        self._has_gap = False
        self._done = asyncio.Event()

    async def take(self, message: Msg) -> None:
        self._has_gap |= message.metadata.sequence.consumer != len(self.messages) + 1
        if not self._has_gap:
            self.messages.append(message)
        self._check()

    async def wait(self, num_messages: int, timeout_seconds: float) -> None:
        """Until all, or a page of them, are here, or until one is missing."""
        self._num_expected = min(num_messages, self._max_messages)
        self._check()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), timeout_seconds)

    def _check(self) -> None:
        if self._has_gap or (self._num_expected is not None and len(self.messages) >= self._num_expected):
            self._done.set()


async def _ask(connection: Connection, stream: str, subject: str, inbox: str, from_sequence: int) -> int:
    """Create the consumer; returns how many messages it will send."""
    config = ConsumerConfig(
        name=f"reader-{secrets.token_hex(8)}",
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=max(from_sequence, 1),
        ack_policy=AckPolicy.NONE,
        filter_subject=subject,
        deliver_subject=inbox,
        inactive_threshold=IDLE_SECONDS,
        mem_storage=True,
        num_replicas=1,
    )
    return (await connection.js.add_consumer(stream, config)).num_pending or 0
