"""The way of jobs into the queue leader, and out of the stream once they have ended.

One consumer, ``queue-<epoch>``, belongs to the leader of that epoch. Taking over deletes the consumers of lower
epochs, which does two things at once: the deposed leader can neither fetch nor acknowledge any more, and every job
that it had not acknowledged is delivered again, to the new one. So ``ack_wait`` may be a day: jobs come back by
takeover, never by time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from headway.broker.connection import Connection
from headway.broker.errors import BrokerUnavailable, Deposed, StreamMismatch, translated
from headway.broker.pull import ConsumerGone, PullReader
from headway.broker.streams import JOBS

log = logging.getLogger(__name__)

CONSUMER = re.compile(r"queue-([0-9]+)")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
ACK_WAIT_SECONDS = 86_400.0
MAX_ACKS_IN_FLIGHT = 64
MAX_TAKEOVER_TRIES = 8
RETRY_SECONDS = 0.5
MIN_PULL_BYTES = 8 * 1024 * 1024
MULTIPLE_CONSUMERS = (10099, 10100)
"""JetStream: a work queue has another consumer already."""


@dataclass(frozen=True, slots=True)
class IncomingJob:
    """A message of the JOBS stream, not yet decoded. ``model`` and ``tenant`` are as the subject says."""

    model: str
    tenant: str
    payload: bytes
    stream_sequence: int
    arrival_seconds: float
    """The broker's timestamp, seconds since the epoch."""
    traceparent: str | None = None


class JobsIntake:
    """The JOBS consumer of one leader, from takeover to `Deposed`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._js = connection.js
        self._epoch = 0
        self._reader: PullReader | None = None
        self._replies: dict[int, str] = {}
        """By stream sequence: where to acknowledge a job."""
        self._acks = asyncio.Semaphore(MAX_ACKS_IN_FLIGHT)
        self.num_unread = 0
        """Jobs of the stream that were not fetched yet, as of the last fetch."""

    async def latest_epoch(self) -> int:
        """The highest epoch that has a consumer; 0 if none. Guards `raise_epoch` against a lost state bucket."""
        return max((epoch for epoch in map(_epoch_of, await self._consumers()) if epoch is not None), default=0)

    async def takeover(self, epoch: int) -> None:
        """Become the one consumer of JOBS. Raises `Deposed` if a higher epoch is there already.

        Two takeovers at once settle it by epoch: a work queue takes one consumer only, so whoever is refused looks
        again. A consumer that is not Headway's is a `StreamMismatch`: it would take jobs away unseen.
        """
        self._epoch = epoch
        self._replies.clear()
        for _ in range(MAX_TAKEOVER_TRIES):
            await self._delete_lower()
            if await self._create():
                return
        raise BrokerUnavailable(f"take over {JOBS}", "other consumers keep appearing")

    async def fetch(self, max_jobs: int, timeout_seconds: float) -> list[IncomingJob]:
        """Jobs that are there, else the first that come; empty after the timeout. In stream order.

        Raises `Deposed` once the consumer is gone, `BrokerUnavailable` while NATS cannot tell.
        """
        assert self._reader is not None, "take over first"
        try:
            messages = await self._reader.read(max_jobs, timeout_seconds)
        except ConsumerGone as exc:
            raise Deposed(self._epoch, str(exc)) from exc
        return [self._incoming(message) for message in messages]

    async def ack(self, stream_sequence: int) -> None:
        """Take the job out of the stream, for good: its end is stored. Harmless if it was done before.

        Waits until the server has confirmed it, and tries again while NATS is away. Raises `Deposed`.
        """
        async with self._acks:
            while (reply := self._replies.get(stream_sequence)) is not None:
                try:
                    with translated("acknowledge a job"):
                        await self._ack(reply)
                except BrokerUnavailable as exc:
                    log.warning("%s; trying again", exc)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._replies.pop(stream_sequence, None)

    async def get_payload(self, stream_sequence: int) -> bytes:
        """The payload of a job that still is in the stream. Raises `MessageMissing`."""
        with translated(f"read job {stream_sequence}"):
            message = await self._js.get_msg(JOBS, seq=stream_sequence)
        return message.data or b""

    async def close(self) -> None:
        """Stop reading. The consumer stays, for the next leader to delete."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    @property
    def _consumer(self) -> str:
        return f"queue-{self._epoch}"

    async def _consumers(self) -> list[str]:
        with translated(f"list the consumers of {JOBS}"):
            return [info.name for info in await self._js.consumers_info(JOBS)]

    async def _delete_lower(self) -> None:
        for name in await self._consumers():
            epoch = _epoch_of(name)
            if epoch is None:
                raise StreamMismatch(JOBS, "consumers", [self._consumer], [name])
            if epoch > self._epoch:
                raise Deposed(self._epoch, f"epoch {epoch} has taken over")
            if epoch < self._epoch:
                await self._delete(name)

    async def _delete(self, name: str) -> None:
        with translated(f"delete consumer {name}"):
            try:
                await self._js.delete_consumer(JOBS, name)
            except NotFoundError:
                log.debug("consumer %s was deleted meanwhile", name)

    async def _create(self) -> bool:
        """False if another consumer came first."""
        with translated(f"create consumer {self._consumer}"):
            limits = (await self._js.stream_info(JOBS)).config
            try:
                info = await self._js.add_consumer(JOBS, _consumer_config(self._consumer, limits.max_msgs or 0))
            except APIError as exc:
                if exc.err_code in MULTIPLE_CONSUMERS:
                    return False
                raise
        self.num_unread = info.num_pending or 0
        max_bytes = max(MIN_PULL_BYTES, 2 * (limits.max_msg_size or 0), 2 * self._connection.max_payload)
        await self.close()
        self._reader = PullReader(self._connection, JOBS, self._consumer, max_bytes)
        return True

    async def _ack(self, reply: str) -> None:
        """Nobody answers if the consumer is gone, but also while JetStream is down: ask which."""
        try:
            await self._connection.client.request(reply, b"+ACK", timeout=self._connection.config.nats_timeout_seconds)
        except NoRespondersError:
            if self._consumer not in await self._consumers():
                raise Deposed(self._epoch, f"consumer {self._consumer} does not exist") from None
            raise

    def _incoming(self, message: Msg) -> IncomingJob:
        _, _, model, tenant = message.subject.split(".")
        meta = message.metadata
        self._replies[meta.sequence.stream] = message.reply
        self.num_unread = meta.num_pending
        return IncomingJob(
            model=model,
            tenant=tenant,
            payload=message.data,
            stream_sequence=meta.sequence.stream,
            arrival_seconds=meta.timestamp.timestamp(),
            traceparent=_traceparent(message.headers),
        )


def _consumer_config(name: str, max_jobs: int) -> ConsumerConfig:
    """Everything may be pending at once, since the queue holds every job of the stream."""
    return ConsumerConfig(
        name=name,
        durable_name=name,
        description="Headway: the queue leader",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_SECONDS,
        deliver_policy=DeliverPolicy.ALL,
        max_ack_pending=max_jobs if max_jobs > 0 else -1,
        max_deliver=-1,
    )


def _epoch_of(consumer: str) -> int | None:
    match = CONSUMER.fullmatch(consumer)
    return int(match[1]) if match else None


def _traceparent(headers: Mapping[str, str] | None) -> str | None:
    """W3C trace context; proxies and libraries write the header's name in any case. Anything malformed is none."""
    for name, value in (headers or {}).items():
        if name.lower() == "traceparent" and TRACEPARENT.fullmatch(value.strip().lower()):
            return value.strip().lower()
    return None
