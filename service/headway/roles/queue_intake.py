"""From a message of the JOBS stream to a job of the queue, or to an answer that says why not.

A payload that is no job is answered like any other job, with an ``end`` record in its own log, and is then taken out
of the stream. Where its identity cannot be known (it is not even JSON) there is a dead letter as well, under the
reserved id of its stream sequence.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence

from headway.broker.config import BrokerConfig
from headway.broker.dead import DeadLetter
from headway.broker.errors import BrokerUnavailable, PayloadRejected
from headway.broker.intake import IncomingJob, JobsIntake
from headway.broker.job_codec import decode_job, estimate_prompt_tokens, reserved_key
from headway.broker.log_end import EndResult
from headway.core.errors import RejectCode
from headway.core.job import FinishReason, Job, JobKey
from headway.core.leases import Leases
from headway.core.queued_job import QueuedJob
from headway.core.records import End, ErrorInfo
from headway.roles.leader_telemetry import LeaderTelemetry
from headway.roles.queue_actions import QueueActions
from headway.roles.quiet_heap import QuietHeap
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock
from headway.telemetry.logs import job_fields

log = logging.getLogger(__name__)

FETCH_JOBS = 512
FETCH_SECONDS = 5.0
RETRY_SECONDS = 0.5
SLICE_SECONDS = 0.01
MAX_REJECTIONS_IN_FLIGHT = 64
CATCH_UP_SECONDS = 5.0
UNKNOWN_MODEL = "other"
"""In metrics: clients must not make up label values."""


class QueueIntake:
    """Feeds one leader's state machine from the stream."""

    def __init__(
        self,
        config: BrokerConfig,
        models: frozenset[str],
        intake: JobsIntake,
        leases: Leases,
        actions: QueueActions,
        telemetry: LeaderTelemetry,
        supervisor: Supervisor,
        clock: WallClock,
        heap: QuietHeap,
    ) -> None:
        self._limits = config.job_limits
        self._max_bytes_per_tenant = config.max_waiting_bytes_per_tenant
        self._models = models
        self._intake = intake
        self._leases = leases
        self._actions = actions
        self._telemetry = telemetry
        self._supervisor = supervisor
        self._clock = clock
        self._heap = heap
        self._rejections = asyncio.Semaphore(MAX_REJECTIONS_IN_FLIGHT)
        self._rejecting: set[asyncio.Task[None]] = set()
        self._reached = 0
        """A stream sequence: the jobs up to there are in the queue, or are being rejected."""
        self._has_caught_up = False
        """Every job that lay in the stream at the start is in the queue."""
        self._news = asyncio.Event()
        """It has gone up."""

    async def run(self, on_caught_up: Callable[[], None]) -> None:
        """For ever; raises `Deposed` when another leader has taken over. ``on_caught_up`` is called once, when every
        job that lay in the stream at the start is in the queue."""
        while True:
            self._reached = self._intake.reached
            self._news.set()
            if not self._has_caught_up and self._intake.num_unread == 0:
                self._has_caught_up = True
                on_caught_up()
            try:
                incoming = await self._intake.fetch(FETCH_JOBS, FETCH_SECONDS)
            except BrokerUnavailable as exc:
                log.warning("%s; trying again", exc)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self._take_all_in(incoming)
            self._heap.has(self._leases.num_outstanding)

    async def _take_all_in(self, incoming: Sequence[IncomingJob]) -> None:
        """In slices: a leader that reads a long stream has its lock to renew meanwhile."""
        loop = asyncio.get_running_loop()
        slice_ends_at = loop.time() + SLICE_SECONDS
        for message in incoming:
            await self._take_in(message)
            if loop.time() >= slice_ends_at:
                await asyncio.sleep(0)
                slice_ends_at = loop.time() + SLICE_SECONDS
        await asyncio.sleep(0)

    async def catch_up(self) -> None:
        """Returns once every job that NATS has taken until now is in the queue, or has its answer if it is no job.

        Raises `BrokerUnavailable` if that takes longer than somebody who has asked for it may wait.
        """
        last_sequence = await self._intake.last_sequence()
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._reached < last_sequence:
                    self._news.clear()
                    await self._news.wait()
                if self._rejecting:
                    await asyncio.wait(tuple(self._rejecting))
        except TimeoutError:
            raise BrokerUnavailable(
                "read the jobs that NATS has taken", f"not done in {CATCH_UP_SECONDS:g} s; try again"
            ) from None

    async def _take_in(self, message: IncomingJob) -> None:
        try:
            job = self._decode(message)
        except PayloadRejected as rejected:
            await self._rejections.acquire()
            task = self._supervisor.spawn(f"reject {message.stream_sequence}", self._reject(message, rejected))
            self._rejecting.add(task)
            task.add_done_callback(self._rejecting.discard)
            return
        self._actions.carry_out(self._leases.add(job.model, _queued(job, message), self._clock.now()))

    def _decode(self, message: IncomingJob) -> Job:
        job = decode_job(message.model, message.tenant, message.payload, message.stream_sequence, self._limits)
        if message.model not in self._models:
            served = ", ".join(sorted(self._models))
            text = f"model {message.model!r} is not served here; the subject may name: {served}"
            raise PayloadRejected(RejectCode.UNKNOWN_MODEL, "model", text, job.key, job.payload_hash)
        self._check_room(job, len(message.payload))
        return job

    def _check_room(self, job: Job, num_bytes: int) -> None:
        """JetStream bounds the jobs of a tenant and the bytes of all; the bytes of one tenant are left to us.

        What lay in the stream at the start may have been taken in, or begun, under a former leader: it stays.
        """
        if not self._has_caught_up or self._leases.find(job.key) is not None:
            return
        num_outstanding, limit = self._leases.num_outstanding_bytes(job.key.tenant), self._max_bytes_per_tenant
        if num_outstanding + num_bytes > limit:
            text = (
                f"this tenant has {num_outstanding} bytes in the queue, of {limit} at most, and the job {num_bytes}; "
                "publish it later, under another id"
            )
            raise PayloadRejected(RejectCode.BUSY, None, text, job.key, job.payload_hash)

    async def _reject(self, message: IncomingJob, rejected: PayloadRejected) -> None:
        try:
            await self._settle_rejected(message, rejected)
        finally:
            self._rejections.release()

    async def _settle_rejected(self, message: IncomingJob, rejected: PayloadRejected) -> None:
        key = rejected.key or reserved_key(message.tenant, message.stream_sequence)
        log.info("rejected: %s", rejected, extra=job_fields(key, message.traceparent))
        if rejected.key is None:
            await self._bury(message, key, str(rejected))
        if not await self._answer(key, message, rejected):
            conflict = f"conflict: {key.tenant}/{key.id} is another job; and {rejected}"
            await self._bury(message, key, conflict)
        await self._intake.ack(message.stream_sequence)

    async def _answer(self, key: JobKey, message: IncomingJob, rejected: PayloadRejected) -> bool:
        """False if the log of that identity is another job's, which must be left alone."""
        if self._leases.find(key) is not None:
            return False
        error = ErrorInfo(rejected.code, rejected.field, rejected.message)
        payload_hash = rejected.payload_hash or hashlib.sha256(message.payload).hexdigest()
        outcome = await self._actions.end(key, End(FinishReason.REJECTED, error), payload_hash)
        if outcome.result is EndResult.WRITTEN:
            self._telemetry.wrote_end(self._label(message), key, FinishReason.REJECTED)
        return outcome.result is not EndResult.OTHER_JOB

    async def _bury(self, message: IncomingJob, key: JobKey, reason: str) -> None:
        letter = DeadLetter(key, message.model, reason, message.payload, message.stream_sequence)
        await self._actions.bury(letter, self._label(message))

    def _label(self, message: IncomingJob) -> str:
        """Of the model, in metrics."""
        return message.model if message.model in self._models else UNKNOWN_MODEL


def _queued(job: Job, message: IncomingJob) -> QueuedJob:
    expires_at = None if job.deadline_seconds is None else message.arrival_seconds + job.deadline_seconds
    return QueuedJob(
        key=job.key,
        stream_sequence=message.stream_sequence,
        arrival_seconds=message.arrival_seconds,
        num_prompt_tokens=estimate_prompt_tokens(job),
        max_tokens=job.sampling.max_tokens,
        priority=job.priority,
        expected_tokens=job.expected_tokens,
        expires_at=expires_at,
        payload_hash=job.payload_hash,
        num_bytes=len(message.payload),
        traceparent=message.traceparent,
        payload=message.payload,
    )
