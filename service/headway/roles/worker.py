"""The worker process: asyncio on this side, torch in the engine child on the other.

    leader ══ lease stream ══▶ WorkerJobs ── Submit ──▶ EngineHost ══ socket ══▶ engine child
                                   │ ◀── outputs, step stats ──┘
                                   └──▶ the jobs' logs (NATS)

After every step of the engine the worker says what it could take now, so the leader's next grant is there when pages
become free. On stop it first says that it takes nothing more, then finishes what fits into ``drain_seconds``, then
hands the rest back with everything kept that was delivered.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from opentelemetry.sdk.trace.export import SpanExporter

from headway.broker.connection import Connection, ConnectionState, connect
from headway.broker.replay_service import ReplayServer
from headway.core.errors import EngineError, SettingError
from headway.core.lease_messages import CancelJob, Demand, Grant, Recall, Welcome, WorkerLoad, WorkerMessage
from headway.core.stats import SchedulerStats
from headway.core.worker_leases import WorkerFacts, WorkerLeases
from headway.engine.messages import Ready, StepReport
from headway.lease.client import LeaseClient
from headway.lease.health import HealthServer
from headway.roles.broker_watch import fail_when_closed
from headway.roles.engine_host import MAX_FAILED_STARTS, EngineHost
from headway.roles.probes import Probes
from headway.roles.stream_watch import STREAMS, StreamWatch
from headway.roles.supervisor import Supervisor
from headway.roles.worker_jobs import WorkerJobs
from headway.settings import Settings
from headway.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

NATS, ENGINE, LEADER = "nats", "engine", "leader"
"""The conditions of readiness, beside those of `StreamWatch`."""
HAND_BACK_SECONDS = 10.0
BROKEN_HAND_BACK_SECONDS = 2.0
"""For a worker that ends because a part of it failed, which may be what its jobs would need."""
STEP_MEAN_WEIGHT = 0.1


class WorkerRole:
    """One worker process. `start` returns once the engine serves and a leader has welcomed it."""

    def __init__(self, settings: Settings, span_exporter: SpanExporter | None = None) -> None:
        self._settings = settings
        self.name = settings.roles.worker_name or socket.gethostname()
        self._incarnation = secrets.token_hex(8)
        self._parts = AsyncExitStack()
        self._supervisor = Supervisor("worker")
        model = settings.engine.served_model
        self.telemetry = Telemetry(settings.telemetry, "worker", self.name, span_exporter)
        self._metrics = self.telemetry.metrics.worker(model)
        self.health = HealthServer(settings.lease)
        process = self.telemetry.metrics.process
        self._probes = Probes(
            self.health, NATS, STREAMS, ENGINE, LEADER, startup={ENGINE}, on_condition=process.condition
        )
        self._streams = StreamWatch(settings.broker, self._probes, self._ask)
        self._is_nats_connected = False
        self.engine = EngineHost(settings.engine, settings.scheduler, settings.roles, self)
        process.watch_engine(lambda: self.engine.pid)
        self.stats: SchedulerStats | None = None
        """The engine's last word; None while there is no engine."""
        self.ready: Ready | None = None
        self.on_stage: Callable[[str], None] = lambda stage: None
        """Hears what its start and its end are busy with, for people."""
        self._hurry = asyncio.Event()
        self._has_abandoned = False
        self.must_start = False
        """Fail if the engine fails at its first start, instead of trying again: for people, who see why and mend it."""
        self.on_report: Callable[[StepReport], None] = lambda report: None
        """Hears every report of the engine, for who measures."""
        self._engine_task: asyncio.Task[None] | None = None
        self._leases: WorkerLeases | None = None
        self._client: LeaseClient | None = None
        self._jobs: WorkerJobs | None = None
        self._last_demand: Demand | None = None
        self._step_seconds = 0.0
        self._has_engine = asyncio.Event()
        self._is_welcome = False
        self._can_take = asyncio.Event()

    async def start(self) -> None:
        """Returns once a leader has welcomed this worker: NATS, the streams and the engine are there then.

        Raises ``SettingError`` if the engine cannot start as it is set, though NATS may not be there yet.
        """
        self._parts.callback(self.telemetry.close)
        await self.health.start()
        self._parts.push_async_callback(self.health.stop)
        log.info("metrics at http://%s/metrics, probes at %s", self.telemetry.metrics.address, self.health.address)
        self._engine_task = self._supervisor.spawn("engine", self.engine.run())
        self._parts.push_async_callback(self.engine.stop)
        self._supervisor.spawn("connect", self._connect())
        await self._supervisor.run_until(self._can_take)

    async def _connect(self) -> None:
        connection = await connect(self._settings.broker, f"headway-worker-{self.name}", on_change=self._on_nats)
        self._parts.push_async_callback(connection.close)
        self._supervisor.spawn("nats", fail_when_closed(connection))
        await self._streams.check(connection)
        self._supervisor.spawn("streams", self._streams.run(connection))
        replays = ReplayServer(connection)
        await replays.start()
        self._parts.push_async_callback(replays.stop)
        self._supervisor.spawn("progress", self._report_progress())
        self._supervisor.spawn("lease", self._follow_leader(connection))

    async def run(self, stop: asyncio.Event) -> None:
        await self._supervisor.run_until(stop)

    async def close(self) -> None:
        """Drain, hand back, end."""
        await self._drain()
        if self._client is not None:
            await self._client.close()
        await self.engine.stop()
        await self._supervisor.close()
        await self._parts.aclose()
        log.info("the worker has stopped")

    def _on_nats(self, state: ConnectionState) -> None:
        self._is_nats_connected = state.connected
        if state.connected:
            self._probes.met(NATS)
        else:
            self._probes.failing(NATS, state.reason)
        self._ask()

    # -- the engine: called by the host --------------------------------------------------------------------------

    def engine_loading(self, stage: str) -> None:
        self.on_stage(stage)
        self._probes.failing(ENGINE, stage)
        log.info("engine: %s", stage)

    def engine_ready(self, ready: Ready) -> None:
        log.info(
            "engine: %s on %s, %d pages of %d tokens", ready.model_id, ready.device, ready.num_pages, ready.page_size
        )
        self.ready = ready
        self._probes.met(ENGINE)
        self._probes.dead(None)
        self._has_engine.set()
        if self._leases is not None and self._jobs is not None:
            self._jobs.engine_ready()
            self._leases.engine_restarted(self._facts(ready))
            self._reconnect("the engine was started again")

    def engine_reported(self, report: StepReport) -> None:
        self.stats = report.scheduler
        self._note_whether_it_can_take()
        self.on_report(report)
        self._metrics.observe_scheduler(report.scheduler)
        if report.step is not None:
            step = report.step
            self._step_seconds += STEP_MEAN_WEIGHT * (step.seconds - self._step_seconds)
            self._metrics.observe_step(step)
            self.telemetry.tracer.emit_step(self._settings.engine.served_model, step, time.time_ns())
        if self._jobs is not None:
            for output in report.outputs:
                self._jobs.output(output)
        self._ask()

    async def engine_gone(self, error: EngineError | SettingError, num_failed_starts: int) -> None:
        """Raises the error if nobody is helped by another try: a setting is wrong, and is not once it has served."""
        reason = str(error)
        self.stats = None
        self._metrics.engine_gone()
        self._probes.failing(ENGINE, reason)
        self._ask()
        if num_failed_starts >= MAX_FAILED_STARTS:
            self._probes.dead(f"the engine failed to start {num_failed_starts} times: {reason}")
        if self.ready is None and (self.must_start or isinstance(error, SettingError)):
            raise error
        if self._jobs is not None:
            await self._jobs.engine_gone(reason)

    def _facts(self, ready: Ready) -> WorkerFacts:
        return WorkerFacts(
            incarnation=self._incarnation,
            name=self.name,
            model=self._settings.engine.served_model,
            page_size=ready.page_size,
            num_pages=ready.num_pages,
            max_num_seqs=ready.max_num_seqs,
        )

    # -- the leader ----------------------------------------------------------------------------------------------

    async def _follow_leader(self, connection: Connection) -> None:
        """The lease stream, for as long as this worker lives; not before there is an engine to lease for."""
        await self._has_engine.wait()
        assert self.ready is not None
        facts = self._facts(self.ready)
        self._leases = leases = WorkerLeases(facts, self._settings.lease.prefetch)
        self._client = client = LeaseClient(self._settings.lease, leases.hello)
        self._jobs = jobs = WorkerJobs(
            self._settings.broker,
            facts.model,
            self.name,
            connection,
            leases,
            self._supervisor,
            self.telemetry.tracer,
            self._metrics,
            self.engine.send,
            self._tell,
            self._streams.troubles,
        )
        async for message in client.messages():
            match message:
                case Welcome():
                    self._welcomed(message)
                case Grant():
                    jobs.grant(message)
                    self._ask()
                case CancelJob():
                    jobs.cancel(message)
                case Recall():
                    jobs.recall(message)

    def _welcomed(self, welcome: Welcome) -> None:
        assert self._leases is not None
        if not self._leases.welcome(welcome):
            self._reconnect(f"its leader has epoch {welcome.epoch}, which is over")
            return
        log.info("the queue has let this worker in (epoch %d)", welcome.epoch)
        self._probes.met(LEADER)
        self._last_demand = None
        self._is_welcome = True
        self._note_whether_it_can_take()
        self._ask()

    def _note_whether_it_can_take(self) -> None:
        """A leader lets it in and the engine has said what there is room for; either may come first."""
        if self._is_welcome and self.stats is not None:
            self._can_take.set()

    def _tell(self, message: WorkerMessage) -> None:
        """About a job that is over here; after it the leader takes our demand for void."""
        assert self._client is not None
        self._client.send(message)
        self._last_demand = None
        self._ask()

    def _ask(self) -> None:
        """Say what could be taken now, if that is news; nothing while there is no engine, or nowhere to write to."""
        if self._leases is None or self._client is None:
            return
        demand = self._leases.demand(self.stats if self._can_write else None)
        if demand != self._last_demand and self._client.send(demand):
            self._last_demand = demand

    @property
    def _can_write(self) -> bool:
        """Jobs that were taken otherwise would wait here, and not where another worker could have them."""
        return self._is_nats_connected and not self._streams.has_trouble

    def _reconnect(self, reason: str) -> None:
        if self._client is not None:
            self._client.reconnect(reason)

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(self._settings.roles.progress_seconds)
            if self._client is None or self._leases is None:
                continue
            if self._client.last_error is not None:
                self._probes.failing(LEADER, self._client.last_error)
            else:
                self._client.send(self._leases.progress(self._load(self.stats)))

    def _load(self, stats: SchedulerStats | None) -> WorkerLoad:
        if stats is None:
            return WorkerLoad(0, 0, 0, 0.0)
        return WorkerLoad(stats.num_running, stats.num_waiting, stats.pages.num_available, self._step_seconds)

    # -- the end -------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Hand back at once what would be finished first."""
        self._hurry.set()

    def abandon_jobs(self) -> None:
        """Neither finish nor hand back at the end: what it would write to is gone for good."""
        self._has_abandoned = True

    async def _drain(self) -> None:
        if self._leases is None or self._jobs is None or self._has_abandoned:
            return
        self._leases.stop()
        self._ask()
        is_broken = self._supervisor.has_failed
        seconds = 0.0 if is_broken else self._settings.roles.drain_seconds
        if len(self._jobs) and seconds:
            self._tell_people(
                f"finishing what runs (jobs: {len(self._jobs)}), at most {seconds:g} s; "
                "another Ctrl-C or SIGTERM hands it back at once"
            )
        if await self._emptied(seconds, unless=self._hurry):
            return
        self._tell_people(f"handing back what runs (jobs: {len(self._jobs)})")
        self._jobs.hand_back_all("the worker is stopping")
        if not await self._emptied(BROKEN_HAND_BACK_SECONDS if is_broken else HAND_BACK_SECONDS):
            log.warning("%d jobs could not be handed back in time", len(self._jobs))

    async def _emptied(self, timeout_seconds: float, unless: asyncio.Event | None = None) -> bool:
        """Whether every job has left within that time, and before the event."""
        assert self._jobs is not None
        emptied = asyncio.create_task(self._jobs.wait_until_empty(), name="worker:emptied")
        waits = [emptied] if unless is None else [emptied, asyncio.create_task(unless.wait(), name="worker:hurry")]
        done, pending = await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return emptied in done

    def _tell_people(self, stage: str) -> None:
        self.on_stage(stage)
        log.info("%s", stage)
