"""The way of jobs into the queue leader, and out of the stream once they have ended.

One consumer, ``queue-<epoch>``, belongs to the leader of that epoch. Taking over deletes the consumers of lower
epochs, which does two things at once: the deposed leader can neither fetch nor acknowledge any more, and every job
that it had not acknowledged is delivered again, to the new one. So ``ack_wait`` may be a day: jobs come back by
takeover, never by time.

Jobs that NATS sent into a connection which then broke come back the same way: the leader makes its own consumer anew
(`DeliveriesLost`). All that it holds is delivered again too and only tells where to acknowledge it now. That costs
the traffic of everything unacknowledged, and a link that never lives as long as that takes would not get past it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from headway.broker.acks import Acknowledger
from headway.broker.connection import Connection
from headway.broker.errors import BrokerUnavailable, Deposed, StreamMismatch, translated
from headway.broker.pull import ConsumerGone, DeliveriesLost, PullReader
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
        self._replies: dict[int, str | None] = {}
        """By stream sequence, every job that is held here: where to acknowledge it; None until the consumer that was
        made anew has delivered it again."""
        self._acks = asyncio.Semaphore(MAX_ACKS_IN_FLIGHT)
        self._acknowledger = Acknowledger(connection)
        self._news = asyncio.Event()
        """Something was delivered, for those who wait for a reply subject."""
        self._changing = asyncio.Lock()
        """Held while the consumer is made anew, so that nobody takes its absence for a deposition."""
        self._is_incomplete = False
        """The consumer was deleted here, and is not yet there again."""
        self._last_sequence = 0
        """Of the stream, when the consumer was made."""
        self._reached = 0
        self.num_unread = 0
        """Jobs of the stream that were not fetched yet, as of the last fetch."""

    @property
    def reached(self) -> int:
        """A stream sequence: whatever stands in the stream up to there was fetched. It falls back when the consumer
        is made anew."""
        return max(self._reached, self._last_sequence if self.num_unread == 0 else 0)

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
        await self._take()

    async def fetch(self, max_jobs: int, timeout_seconds: float) -> list[IncomingJob]:
        """Jobs that are there, else the first that come; empty after the timeout. In stream order, each job once.

        Raises `Deposed` once the consumer is gone, `BrokerUnavailable` while NATS cannot tell.
        """
        if self._is_incomplete:
            await self._begin_again()
        assert self._reader is not None, "take over first"
        try:
            messages = await self._reader.read(max_jobs, timeout_seconds)
        except ConsumerGone as exc:
            raise Deposed(self._epoch, str(exc)) from exc
        except DeliveriesLost as exc:
            log.warning("%s; all that is not acknowledged comes again", exc)
            await self._begin_again()
            return []
        jobs = [job for message in messages if (job := self._incoming(message)) is not None]
        self._news.set()
        return jobs

    async def ack_together(self, stream_sequences: Sequence[int]) -> None:
        """`ack` for many, at the cost of few. Raises `Deposed`."""
        replies = {reply: number for number in stream_sequences if (reply := self._replies.get(number))}
        try:
            confirmed = await self._acknowledger.ack(replies)
        except BrokerUnavailable as exc:
            log.debug("%s; one by one", exc)
            confirmed = set()
        for reply in confirmed:
            self._forget(replies[reply], reply)
        # One by one it is found out why the others are not confirmed.
        await asyncio.gather(*(self.ack(number) for number in stream_sequences if number in self._replies))

    async def ack(self, stream_sequence: int) -> None:
        """Take the job out of the stream, for good: its end is stored. Harmless if it was done before.

        Waits until the server has confirmed it, and tries again while NATS is away. Raises `Deposed`.
        """
        async with self._acks:
            while stream_sequence in self._replies:
                reply = await self._reply_of(stream_sequence)
                try:
                    with translated("acknowledge a job"):
                        await self._ack(reply)
                except BrokerUnavailable as exc:
                    log.warning("%s; trying again", exc)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    self._forget(stream_sequence, reply)

    async def get_payload(self, stream_sequence: int) -> bytes:
        """The payload of a job that still is in the stream. Raises `MessageMissing`."""
        with translated(f"read job {stream_sequence}"):
            message = await self._js.get_msg(JOBS, seq=stream_sequence)
        return message.data or b""

    async def close(self) -> None:
        """Stop reading. The consumer stays, for the next leader to delete."""
        await self._close_reader()
        await self._acknowledger.close()

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    @property
    def _consumer(self) -> str:
        return f"queue-{self._epoch}"

    async def _consumers(self) -> list[str]:
        with translated(f"list the consumers of {JOBS}"):
            return [info.name for info in await self._js.consumers_info(JOBS)]

    async def _take(self) -> None:
        for _ in range(MAX_TAKEOVER_TRIES):
            await self._delete_lower()
            if await self._create():
                return
        raise BrokerUnavailable(f"take over {JOBS}", "other consumers keep appearing")

    async def _begin_again(self) -> None:
        """Make our consumer anew, so that all that is not acknowledged is delivered (again). As with a takeover a
        higher epoch wins: `Deposed`. Until it has worked, `fetch` tries again."""
        async with self._changing:
            was_begun, self._is_incomplete = self._is_incomplete, True
            self._replies = dict.fromkeys(self._replies)
            self._reached = self._last_sequence = 0
            await self._close_reader()
            if not await self._delete(self._consumer) and not was_begun:
                raise Deposed(self._epoch, f"consumer {self._consumer} does not exist")
            await self._take()
            self._is_incomplete = False
            self._news.set()

    async def _delete_lower(self) -> None:
        for name in await self._consumers():
            epoch = _epoch_of(name)
            if epoch is None:
                raise StreamMismatch(JOBS, "consumers", [self._consumer], [name])
            if epoch > self._epoch:
                raise Deposed(self._epoch, f"epoch {epoch} has taken over")
            if epoch < self._epoch:
                await self._delete(name)

    async def _delete(self, name: str) -> bool:
        """False: it was not there (any more)."""
        with translated(f"delete consumer {name}"):
            try:
                return await self._js.delete_consumer(JOBS, name)
            except NotFoundError:
                log.debug("consumer %s was deleted meanwhile", name)
                return False

    async def _create(self) -> bool:
        """False if another consumer came first."""
        with translated(f"create consumer {self._consumer}"):
            stream = await self._js.stream_info(JOBS)
            limits = stream.config
            try:
                info = await self._js.add_consumer(JOBS, _consumer_config(self._consumer, limits.max_msgs or 0))
            except APIError as exc:
                if exc.err_code in MULTIPLE_CONSUMERS:
                    return False
                raise
        self._reached, self._last_sequence, self.num_unread = 0, stream.state.last_seq, info.num_pending or 0
        max_bytes = max(MIN_PULL_BYTES, 2 * (limits.max_msg_size or 0), 2 * self._connection.max_payload)
        await self._close_reader()
        self._reader = PullReader(self._connection, JOBS, self._consumer, max_bytes)
        return True

    async def last_sequence(self) -> int:
        """Of the stream: the newest job that NATS has taken."""
        with translated(f"look at {JOBS}"):
            return (await self._js.stream_info(JOBS)).state.last_seq

    async def _reply_of(self, stream_sequence: int) -> str | None:
        """Where to acknowledge the job; None if it is no longer in the stream, so that nothing is left to do.

        An acknowledgement that a former consumer got counts only if it made the job disappear: the one that was made
        anew is asked again once it has delivered the job, or has gone past its place.
        """
        while self._replies.get(stream_sequence, "") is None and self.reached < stream_sequence:
            self._news.clear()
            await self._news.wait()
        return self._replies.get(stream_sequence)

    async def _ack(self, reply: str | None) -> None:
        """Nobody answers if the consumer is gone, but also while JetStream is down: ask which."""
        if reply is None:
            return
        try:
            await self._connection.client.request(reply, b"+ACK", timeout=self._connection.config.nats_timeout_seconds)
        except NoRespondersError:
            async with self._changing:
                if not self._is_incomplete and self._consumer not in await self._consumers():
                    raise Deposed(self._epoch, f"consumer {self._consumer} does not exist") from None
            raise

    def _forget(self, stream_sequence: int, reply: str | None) -> None:
        """The job was acknowledged at ``reply``, which counts unless the consumer was made anew meanwhile."""
        if self._replies.get(stream_sequence) == reply:
            self._replies.pop(stream_sequence, None)

    def _incoming(self, message: Msg) -> IncomingJob | None:
        """None: the job is held already, and was only delivered again."""
        _, _, model, tenant = message.subject.split(".")
        meta = message.metadata
        is_held = meta.sequence.stream in self._replies
        self._replies[meta.sequence.stream] = message.reply
        self._reached = max(self._reached, meta.sequence.stream)
        self.num_unread = meta.num_pending
        if is_held:
            return None
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
