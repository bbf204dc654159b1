"""Asking the leader: cancel a job, show the state of the queue. Plain NATS requests, so that a person can ask too.

    nats request headway.cancel.acme.a1 ''   ──▶  {"outcome": "cancelled", "finish_reason": null}
    nats request headway.status ''           ──▶  the queue's status as one JSON object

Only the leader listens. Between two leaders nobody does; those who ask try again until their own timeout. An answer
is either the above or ``{"error": "…"}``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from headway.broker.backoff import Backoff
from headway.broker.connection import Connection
from headway.broker.errors import BrokerRefused, BrokerUnavailable, NoLeader, translated
from headway.broker.log_store import JobLogs
from headway.broker.streams import cancel_subject
from headway.core.errors import HeadwayError
from headway.core.job import JOB_ID, TOKEN, FinishReason, JobKey
from headway.core.lease_actions import CancelAnswer, CancelOutcome
from headway.core.records import End
from headway.core.status import QueueStatus

log = logging.getLogger(__name__)

STATUS_SUBJECT = "headway.status"
CANCEL_SUBJECTS = "headway.cancel.*.*"
MAX_PENDING_CANCELS = 4096
TIMEOUT_SECONDS = 30.0
TRY_SECONDS = 5.0
"""The leader that heard a request may be gone before it answers; the next one has to be asked anew."""


class _CancelReply(msgspec.Struct):
    """The wire's form of an answer."""

    outcome: CancelOutcome | None = None
    finish_reason: FinishReason | None = None
    error: str | None = None


class ControlServer:
    """Answers for the leader, from `start` to `stop`.

    ``cancel`` returns once the job's ``end`` is stored. What the queue does not know any more is looked up in the
    job's log, so that a job that has ended is told from one that never was. What has no end there may be a job that
    NATS has taken and the queue has not read yet: ``catch_up`` returns once it has read all that was there.
    ``may_answer`` is asked first: a leader that was paused finds requests that its successor answers.
    """

    def __init__(
        self,
        connection: Connection,
        cancel: Callable[[JobKey], Awaitable[CancelAnswer]],
        status: Callable[[], QueueStatus],
        catch_up: Callable[[], Awaitable[None]],
        may_answer: Callable[[], bool] = lambda: True,
    ) -> None:
        self._connection = connection
        self._logs = JobLogs(connection)
        self._cancel = cancel
        self._status = status
        self._catch_up = catch_up
        self._may_answer = may_answer
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        client = self._connection.client
        with translated("listen for requests"):
            self._subscriptions = [
                await client.subscribe(CANCEL_SUBJECTS, cb=self._on_cancel),
                await client.subscribe(STATUS_SUBJECT, cb=self._on_status),
            ]

    async def stop(self) -> None:
        """Stop listening. Requests that are not answered yet never are: their senders ask the next leader."""
        for subscription in self._subscriptions:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()
        self._subscriptions = []
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _on_cancel(self, message: Msg) -> None:
        """Each request waits in a task of its own for the job's end."""
        if not self._may_answer():
            return
        if len(self._tasks) >= MAX_PENDING_CANCELS:
            await self._reply(message, _CancelReply(error="too many requests at once; try again"))
            return
        task = asyncio.create_task(self._answer_cancel(message), name=f"answer {message.subject}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_cancel(self, message: Msg) -> None:
        key = JobKey(*message.subject.split(".")[2:])
        try:
            reply = await self._cancel_reply(key)
        except HeadwayError as exc:
            log.warning("cancel %s/%s: %s", key.tenant, key.id, exc)
            reply = _CancelReply(error=str(exc))
        await self._reply(message, reply)

    async def _cancel_reply(self, key: JobKey) -> _CancelReply:
        """A token may be a wildcard, which would find any job's log."""
        if not (TOKEN.fullmatch(key.tenant) and JOB_ID.fullmatch(key.id)):
            return _CancelReply(error="the subject must be headway.cancel.<tenant>.<id> of one job")
        reply = await self._try(key)
        if reply.outcome is CancelOutcome.NOT_FOUND:
            await self._catch_up()
            reply = await self._try(key)
        return reply

    async def _try(self, key: JobKey) -> _CancelReply:
        answer = await self._cancel(key)
        if answer.outcome is CancelOutcome.NOT_FOUND:
            tail = await self._logs.tail(key)
            if tail is not None and isinstance(tail.record, End):
                return _CancelReply(CancelOutcome.ENDED, tail.record.finish_reason)
        return _CancelReply(answer.outcome, answer.finish_reason)

    async def _on_status(self, message: Msg) -> None:
        if self._may_answer():
            await self._reply(message, self._status())

    async def _reply(self, message: Msg, reply: object) -> None:
        """Whoever asked without a reply subject, or has gone, gets none."""
        if message.reply:
            with suppress(nats.errors.Error):
                await message.respond(msgspec.json.encode(reply))


async def request_cancel(connection: Connection, key: JobKey, timeout_seconds: float = TIMEOUT_SECONDS) -> CancelAnswer:
    """Cancel a job; answered once its ``end`` is stored. Harmless twice.

    Raises `BrokerUnavailable` if no leader answered in time, `BrokerRefused` if it could not do it or we may not ask.
    """
    operation = f"cancel {key.tenant}/{key.id}"
    reply = msgspec.json.decode(
        await _request(connection, cancel_subject(key), operation, timeout_seconds), type=_CancelReply
    )
    if reply.outcome is None:
        raise BrokerRefused(operation, None, None, reply.error or "no outcome")
    return CancelAnswer(key, reply.outcome, reply.finish_reason)


async def request_status(connection: Connection, timeout_seconds: float = TIMEOUT_SECONDS) -> QueueStatus:
    """The leader's view of queue and workers.

    Raises `BrokerUnavailable` if no leader answered in time, `BrokerRefused` if we may not ask.
    """
    data = await _request(connection, STATUS_SUBJECT, "ask for the status of the queue", timeout_seconds)
    return msgspec.json.decode(data, type=QueueStatus)


async def _request(connection: Connection, subject: str, operation: str, timeout_seconds: float) -> bytes:
    """Tries until somebody answers. A connection that is closed for good is no reason to wait."""
    backoff = Backoff()
    error = BrokerUnavailable(operation, f"no answer in {timeout_seconds:g} s")
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            while True:
                try:
                    return await _ask(connection, subject, operation, min(TRY_SECONDS, timeout_seconds))
                except BrokerUnavailable as exc:
                    error = exc
                if connection.client.is_closed:
                    break
                await backoff.pause()
    raise error


async def _ask(connection: Connection, subject: str, operation: str, timeout_seconds: float) -> bytes:
    """One try."""
    if not (connection.client.is_connected or connection.client.is_closed):
        raise BrokerUnavailable(operation, connection.state.reason)
    try:
        with translated(operation):
            return (await connection.client.request(subject, b"", timeout=timeout_seconds)).data
    except BrokerUnavailable as exc:
        match exc.__cause__:
            case nats.errors.NoRespondersError():
                raise NoLeader(operation, "no queue process is listening") from exc
            case nats.errors.TimeoutError():
                raise BrokerUnavailable(operation, f"no answer in {timeout_seconds:g} s") from exc
        raise
