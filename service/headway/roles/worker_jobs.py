"""The jobs of one worker, each on its way from the grant to the end of its log.

    Grant ─▶ take the log over ─▶ engine ─▶ tokens into the log ─▶ end (or released) ─▶ Ended (or Returned)
                  │ the log is another's
                  └─▶ Refused, or Ended if it had an end already

Whatever happens, every job leaves by one of the messages on the right, once: `WorkerLeases` sees to that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection
from headway.broker.errors import BrokerError, Fenced, LogConflict, LogEnded, LogIncomplete, PayloadRejected
from headway.broker.job_codec import decode_job
from headway.broker.joblog import LogState
from headway.broker.log_end import append_end
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.broker.troubles import Troubles
from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import CancelJob, Grant, Recall, WorkerMessage
from headway.core.records import End, ErrorInfo, Released
from headway.core.worker_leases import GrantVerdict, WorkerLeases
from headway.engine.messages import Cancel, Command, SequenceOutput, Withdraw
from headway.roles.job_run import JobRun
from headway.roles.supervisor import Supervisor
from headway.telemetry.logs import job_fields
from headway.telemetry.tracing import JobTracer
from headway.telemetry.worker_metrics import WorkerMetrics

log = logging.getLogger(__name__)

NO_ENGINE = "the engine is being started again"
MORE_LOST_ATTEMPTS = "its log counts more lost attempts than its leader knew"
"""So that the leader may grant it alone, or give it up."""
LOST_RECORDS = ErrorInfo("log_incomplete", None, "the first tokens have reached their age limit; the job cannot go on")


class WorkerJobs:
    """``to_engine`` and ``to_leader`` send one message; they never wait. ``troubles``: see `JobLogs`."""

    def __init__(
        self,
        config: BrokerConfig,
        model: str,
        worker: str,
        connection: Connection,
        leases: WorkerLeases,
        supervisor: Supervisor,
        tracer: JobTracer,
        metrics: WorkerMetrics,
        to_engine: Callable[[Command], None],
        to_leader: Callable[[WorkerMessage], None],
        troubles: Troubles | None = None,
    ) -> None:
        self._config = config
        self._model = model
        self._worker = worker
        self._logs = JobLogs(connection, troubles)
        self._pace = Pace(config.chunk_interval_seconds, config.max_chunk_interval_seconds)
        self._leases = leases
        self._supervisor = supervisor
        self._tracer = tracer
        self._metrics = metrics
        self._to_engine = to_engine
        self._to_leader = to_leader
        self._has_left = asyncio.Event()
        self._runs: dict[JobKey, JobRun] = {}
        self._leaving: dict[JobKey, JobRun] = {}
        """Dropped, and not out of the engine yet: what it still says under these keys is about them."""
        self._has_engine = True

    def __len__(self) -> int:
        return len(self._leases.held_keys)

    async def wait_until_empty(self) -> None:
        """Returns once every job has left, and its last message is on its way."""
        while self._leases.held_keys:
            self._has_left.clear()
            await self._has_left.wait()

    # -- from the leader -----------------------------------------------------------------------------------------

    def grant(self, grant: Grant) -> None:
        match self._leases.accept(grant):
            case GrantVerdict.START:
                self._start(grant)
            case GrantVerdict.STOPPING:
                self._say(self._leases.returned(grant.key, "the worker is stopping"))
            case GrantVerdict.RENEWED | GrantVerdict.STALE:
                pass

    def cancel(self, message: CancelJob) -> None:
        run = self._runs.get(message.key)
        if run is None or not self._leases.holds(message.key, message.grant):
            return
        run.cancelling = message.reason
        if run.in_engine:
            self._to_engine(Cancel(message.key, message.reason))

    def recall(self, message: Recall) -> None:
        if self._leases.holds(message.key, message.grant):
            self._hand_back(message.key, "recalled", only_if_waiting=True)

    def hand_back_all(self, reason: str) -> None:
        for key in list(self._runs):
            self._hand_back(key, reason, only_if_waiting=False)

    # -- from the engine -----------------------------------------------------------------------------------------

    def output(self, output: SequenceOutput) -> None:
        """What one step gave one job."""
        is_last = output.withdrawn or output.finish_reason is not None
        run = self._leaving.get(output.key) or self._runs.get(output.key)
        if run is None:
            return
        if is_last:
            run.left_engine.set()
        if self._leaving.get(output.key) is run:
            if is_last:
                del self._leaving[output.key]
            return
        run.note(output)
        usage = run.usage
        self._leases.report(output.key, usage.prompt_tokens, usage.cached_tokens, self._num_outputs(run))
        try:
            if output.token_ids or output.text:
                run.writer.tokens(output.token_ids, output.text, output.logprobs)
        except Fenced as exc:
            self._drop(run, exc)
            return
        if is_last:
            self._supervisor.spawn(f"finish {run.grant.stream_sequence}", self._alone(run, self._finish(run, output)))

    def engine_ready(self) -> None:
        """Another engine serves, which has none of the jobs."""
        self._has_engine = True

    async def engine_gone(self, reason: str) -> None:
        """Every job that it had goes back; what is not stored yet will be generated again, the same."""
        self._has_engine = False
        for run in self._leaving.values():
            run.left_engine.set()
        self._leaving.clear()
        for run in list(self._runs.values()):
            if not run.in_engine or run.left_engine.is_set():
                continue
            run.left_engine.set()
            self._tracer.emit_attempt(run.traced_job(), run.lost_attempt(self._worker, reason))
            await run.writer.drop()
            self._leave(run)
            lost = run.writer.state.num_counted_attempts
            self._say(self._leases.returned(run.grant.key, reason, num_lost_attempts=lost))

    # -- the way of one job --------------------------------------------------------------------------------------

    def _start(self, grant: Grant) -> None:
        """The run is known at once, so that a cancel right behind the grant finds it."""
        key, limits = grant.key, self._config.job_limits
        try:
            job = decode_job(self._model, key.tenant, grant.payload, grant.stream_sequence, limits)
        except PayloadRejected as rejected:
            self._supervisor.spawn(f"reject {grant.stream_sequence}", self._reject(grant, rejected))
            return
        writer = LogWriter(self._logs, LogState(key), self._pace)
        run = self._runs[key] = JobRun(grant, job, writer)
        self._supervisor.spawn(f"begin {grant.stream_sequence}", self._alone(run, self._begin(run)))

    async def _alone(self, run: JobRun, work: Coroutine[Any, Any, None]) -> None:
        """A fault of ours in the handling of one job costs that job an attempt, and no other job anything.

        Errors of the broker are not about one job: they end the role.
        """
        try:
            await work
        except BrokerError:
            raise
        except Exception as exc:
            log.exception("a fault in the handling of a job", extra=job_fields(run.grant.key))
            self._abandon(run)
            lost = max(run.grant.num_lost_attempts + 1, run.writer.state.num_counted_attempts)
            self._say(self._leases.returned(run.grant.key, type(exc).__name__, num_lost_attempts=lost))

    async def _begin(self, run: JobRun) -> None:
        """A job that finds no engine goes back before it has an attempt."""
        if not self._has_engine:
            self._leave(run)
            self._say(self._leases.returned(run.grant.key, NO_ENGINE))
        elif await self._take_log(run):
            self._metrics.attempt_started(run.grant.key.tenant)
            if run.num_lost_attempts > run.grant.num_lost_attempts:
                run.returning = MORE_LOST_ATTEMPTS
            await self._enter_engine(run)

    async def _take_log(self, run: JobRun) -> bool:
        """Write the attempt. An empty log is assumed first, which saves most jobs the reading. False: no log for us."""
        key = run.grant.key
        try:
            await run.writer.attempt(run.attempt(self._worker))
        except LogEnded as exc:
            self._leave(run)
            self._say(self._leases.ended(key, exc.end.finish_reason, exc.end.usage.completion_tokens))
        except Fenced as exc:
            log.warning("%s", exc, extra=job_fields(key))
            self._leave(run)
            self._say(self._leases.refused(key, isinstance(exc, LogConflict), _epoch_of(run.writer.state)))
        except LogIncomplete as exc:
            log.error("%s", exc, extra=job_fields(key))
            self._leave(run)
            await self._end_without_running(run.grant, End(FinishReason.ERROR, LOST_RECORDS), run.job.payload_hash)
        else:
            return True
        return False

    async def _enter_engine(self, run: JobRun) -> None:
        former = self._leaving.get(run.grant.key)
        if former is not None:
            await former.left_engine.wait()
        if run.cancelling is not None:
            await self._end(run, run.end(run.cancelling, None, None))
        elif run.returning is not None or not self._has_engine:
            await self._release(run, run.returning or NO_ENGINE)
        else:
            run.in_engine = True
            self._to_engine(run.submit())
            self._leases.submitted(run.grant.key)

    async def _finish(self, run: JobRun, last: SequenceOutput) -> None:
        self._tracer.emit_attempt(run.traced_job(), run.traced_attempt(self._worker, last))
        if last.finish_reason is None:
            await self._release(run, run.returning or "handed back")
        else:
            await self._end(run, run.end(last.finish_reason, last.error, last))

    async def _end(self, run: JobRun, end: End) -> None:
        try:
            await run.writer.end(end)
        except Fenced as exc:
            self._drop(run, exc)
            return
        self._metrics.job_ended(run.grant.key.tenant, end)
        self._leave(run)
        self._say(self._leases.ended(run.grant.key, end.finish_reason, end.usage.completion_tokens))

    async def _release(self, run: JobRun, reason: str) -> None:
        try:
            await run.writer.release(Released(reason, run.grant.token))
        except Fenced as exc:
            self._drop(run, exc)
            return
        self._leave(run)
        lost = run.writer.state.num_counted_attempts
        self._say(self._leases.returned(run.grant.key, reason, num_lost_attempts=lost))

    async def _reject(self, grant: Grant, rejected: PayloadRejected) -> None:
        """The leader decoded the same bytes, so this is a job whose message is gone, or another version's."""
        end = End(FinishReason.REJECTED, ErrorInfo(rejected.code, rejected.field, rejected.message))
        await self._end_without_running(grant, end, rejected.payload_hash)

    async def _end_without_running(self, grant: Grant, end: End, payload_hash: str) -> None:
        async def is_newest(state: LogState) -> None:
            if state.grant is not None and state.grant > grant.token:
                raise Fenced(grant.key, f"grant {state.grant} comes after {grant.token}")

        try:
            await append_end(self._logs, grant.key, end, payload_hash, is_newest)
        except Fenced as exc:
            log.warning("%s", exc, extra=job_fields(grant.key))
            self._say(self._leases.refused(grant.key, conflict=False))
        else:
            self._say(self._leases.ended(grant.key, end.finish_reason))

    def _hand_back(self, key: JobKey, reason: str, only_if_waiting: bool) -> None:
        run = self._runs.get(key)
        if run is None or run.left_engine.is_set():
            return
        run.returning = reason
        if run.in_engine:
            self._to_engine(Withdraw(key, only_if_waiting))

    def _drop(self, run: JobRun, exc: Fenced) -> None:
        """Somebody else writes this log now."""
        log.warning("%s; dropped", exc, extra=job_fields(run.grant.key))
        self._abandon(run)
        self._say(self._leases.refused(run.grant.key, conflict=isinstance(exc, LogConflict)))

    def _abandon(self, run: JobRun) -> None:
        """Take the job from the engine, which still answers the cancel: the key stays taken until then."""
        self._leave(run)
        if run.in_engine and not run.left_engine.is_set():
            self._leaving[run.grant.key] = run
            self._to_engine(Cancel(run.grant.key))

    def _leave(self, run: JobRun) -> None:
        if self._runs.get(run.grant.key) is run:
            del self._runs[run.grant.key]

    def _num_outputs(self, run: JobRun) -> int:
        """Over all attempts."""
        return max(run.usage.completion_tokens, run.num_resumed_tokens + run.num_output_tokens)

    def _say(self, message: WorkerMessage | None) -> None:
        if message is not None:
            self._to_leader(message)
            self._has_left.set()


def _epoch_of(state: LogState) -> int:
    """Of the newest grant in the log; 0: there is none."""
    return 0 if state.grant is None else state.grant.epoch
