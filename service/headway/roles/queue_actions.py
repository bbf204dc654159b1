"""Carries out what the leader's state machine decided (`core.lease_actions`).

Messages to workers go out in the order of the decisions, through the outbox. What goes to the broker is independent
from job to job: each job has a chain of its own (dead letter before end before ack), and every link tries until it
worked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from headway.broker.backoff import Backoff
from headway.broker.connection import Connection
from headway.broker.dead import DeadLetter, DeadLetters
from headway.broker.epoch_proof import EpochProof
from headway.broker.errors import BrokerError, BrokerUnavailable, MessageMissing
from headway.broker.intake import JobsIntake
from headway.broker.joblog import LogState
from headway.broker.log_end import EndOutcome, EndResult, append_end
from headway.broker.log_store import JobLogs
from headway.broker.settlements import Settlements
from headway.broker.troubles import Troubles
from headway.core.job import JobKey
from headway.core.lease_actions import Action, CancelAnswer, Drop, GiveWay, Send, Settle, WriteDead, WriteEnd
from headway.core.leases import Leases
from headway.core.queued_job import QueuedJob
from headway.core.records import End, Timings
from headway.roles.leader_telemetry import LeaderTelemetry
from headway.roles.outbox import Outbox, Streams
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock
from headway.telemetry.logs import job_fields

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


class QueueActions:
    """The hands of one leader."""

    def __init__(
        self,
        leases: Leases,
        intake: JobsIntake,
        connection: Connection,
        proof: EpochProof,
        troubles: Troubles,
        streams: Streams,
        telemetry: LeaderTelemetry,
        supervisor: Supervisor,
        clock: WallClock,
    ) -> None:
        self._leases = leases
        self._intake = intake
        self._connection = connection
        self._logs = JobLogs(connection, troubles)
        self._troubles = troubles
        self._dead = DeadLetters(connection)
        self._proof = proof
        self._telemetry = telemetry
        self._supervisor = supervisor
        self._clock = clock
        self._outbox = Outbox(streams, leases.find, intake.get_payload, telemetry.granted, supervisor, clock)
        self._settlements = Settlements(intake)
        supervisor.spawn("settle", self._settlements.run())
        self._cancels: dict[JobKey, asyncio.Future[CancelAnswer]] = {}
        self._chains: dict[int, asyncio.Task[None]] = {}
        """By stream sequence: the last thing that is being done about that job."""

    def carry_out(self, actions: Sequence[Action]) -> None:
        """Returns at once."""
        for action in actions:
            match action:
                case Send() | Drop():
                    self._outbox.put(action)
                case Settle(job):
                    self._settle(job)
                case WriteEnd(job):
                    self._chain(job, "end", partial(self._write_end, action))
                case WriteDead(_, job):
                    self._chain(job, "bury", partial(self._write_dead, action))
                case GiveWay(to):
                    self._supervisor.spawn("give way", self._proof.give_way(to))
                case CancelAnswer():
                    waiting = self._cancels.pop(action.key, None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(action)

    async def cancel(self, key: JobKey) -> CancelAnswer:
        """Returns once the job's end is stored; several may ask for the same job."""
        waiting = self._cancels.get(key)
        if waiting is None:
            waiting = self._cancels[key] = asyncio.get_running_loop().create_future()
            self.carry_out(self._leases.cancel(key))
        return await asyncio.shield(waiting)

    async def end(self, key: JobKey, end: End, payload_hash: str) -> EndOutcome:
        """End a job that no worker runs, as the leader. Raises `Deposed` instead if another one leads by now."""
        return await append_end(self._logs, key, end, payload_hash, self._may_end)

    async def finish(self) -> None:
        """Returns once all that is under way with the broker is done."""
        while self._chains:
            await asyncio.wait(tuple(self._chains.values()))
        await self._settlements.finish()

    def _settle(self, job: QueuedJob) -> None:
        """Nearly all jobs end at a worker: nothing is being done about them here, and no chain is needed."""
        if job.stream_sequence in self._chains:
            self._chain(job, "settle", partial(self._intake.ack, job.stream_sequence))
        else:
            self._settlements.settle(job.stream_sequence)

    def _chain(self, job: QueuedJob, name: str, work: Work) -> None:
        """Does ``work`` once all earlier work on this job is done."""
        before = self._chains.get(job.stream_sequence)
        task = self._supervisor.spawn(f"{name} {job.stream_sequence}", _after(before, work))
        self._chains[job.stream_sequence] = task

        def done(_: asyncio.Task[None]) -> None:
            if self._chains.get(job.stream_sequence) is task:
                del self._chains[job.stream_sequence]

        task.add_done_callback(done)

    async def _write_end(self, action: WriteEnd) -> None:
        job = action.job
        waited = max(0.0, self._clock.now() - job.arrival_seconds)
        # No usage: the log knows what was delivered, the last report of a lost worker is older.
        end = End(action.finish_reason, action.error, timings=Timings(queue_seconds=waited))
        outcome = await self.end(job.key, end, job.payload_hash)
        ended = outcome.state.end if outcome.result is EndResult.ALREADY_ENDED else None
        stored = end.finish_reason if ended is None else ended.finish_reason  # a worker may have been faster
        outstanding = self._leases.find(job.key)
        self.carry_out(self._leases.ended_by_leader(job.key, stored))
        if outstanding is not None:
            self._telemetry.ended(outstanding, stored)
            if outcome.result is EndResult.WRITTEN:
                self._telemetry.wrote_end(outstanding.model, job.key, stored)

    async def _may_end(self, _: LogState) -> None:
        await self._proof.renew()

    async def _write_dead(self, action: WriteDead) -> None:
        job = action.job
        await self._proof.renew()
        payload = job.payload if job.payload is not None else await self._payload_of(job)
        letter = DeadLetter(job.key, action.model, action.reason, payload, job.stream_sequence, job.num_lost_attempts)
        await self.bury(letter, action.model)

    async def _payload_of(self, job: QueuedJob) -> bytes:
        try:
            return await self._intake.get_payload(job.stream_sequence)
        except (MessageMissing, BrokerUnavailable):
            return b""

    async def bury(self, letter: DeadLetter, label: str) -> None:
        """Tries until it is stored. ``label`` is the model's name in metrics, which a client must not make up."""
        log.warning("dead letter: %s", letter.reason, extra=job_fields(letter.key))
        backoff = Backoff()
        try:
            while not await self._try_to_bury(letter):
                await backoff.pause()
        finally:
            self._troubles.remove(letter)
        self._telemetry.buried(label)

    async def _try_to_bury(self, letter: DeadLetter) -> bool:
        try:
            await self._dead.put(letter)
        except BrokerError as exc:
            log.warning("%s; trying again", exc)
            if self._connection.client.is_connected:
                self._troubles.add(letter, str(exc))
            return False
        return True


async def _after(before: asyncio.Task[None] | None, work: Work) -> None:
    if before is not None:
        await asyncio.wait({before})
    await work()
