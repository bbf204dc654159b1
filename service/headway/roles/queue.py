"""The queue process: owns the JOBS consumer and the priority queue, and leases jobs to workers.

    connect ─▶ check streams ─▶ raise the epoch, take the consumer over ─▶ read the stream ─▶ grant
                                                                 (unready, with the reason, until here)

All durable state is in NATS: a new process rebuilds itself from the stream and from what the workers say they hold.
A process that finds itself deposed by a newer one ends with an error, since it can neither grant nor ack any more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from contextlib import AsyncExitStack

from opentelemetry.sdk.trace.export import SpanExporter

from headway.broker.connection import Connection, ConnectionState, connect
from headway.broker.control import ControlServer
from headway.broker.intake import JobsIntake
from headway.broker.state import StateStore
from headway.broker.streams import ensure_streams
from headway.core.errors import BrokerError
from headway.core.lease_actions import Settle
from headway.core.lease_messages import Demand, Ended, Hello, WorkerMessage
from headway.core.leases import Leases
from headway.core.status import QueueStatus
from headway.lease.health import HealthServer
from headway.lease.server import LeaseServer
from headway.roles.broker_watch import fail_when_closed
from headway.roles.cluster_services import ClusterServices, with_pod_address
from headway.roles.leader_telemetry import LeaderTelemetry
from headway.roles.probes import Probes
from headway.roles.queue_actions import QueueActions
from headway.roles.queue_intake import QueueIntake
from headway.roles.succession import Succession
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock
from headway.settings import Settings
from headway.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

NATS, LEADING = "nats", "leading"
"""The conditions of readiness."""
RETRY_SECONDS = 2.0
TICK_SECONDS = 0.25
OBSERVE_SECONDS = 1.0
LAST_WORD_SECONDS = 3.0


class QueueRole:
    """One queue process. `start` returns once it grants jobs; `close` leaves all that waits to the next one."""

    def __init__(self, settings: Settings, span_exporter: SpanExporter | None = None) -> None:
        lease = with_pod_address(settings.lease, settings.cluster.pod_ip)
        self._settings = settings = dataclasses.replace(settings, lease=lease)
        self._clock = WallClock()
        self._parts = AsyncExitStack()
        self._supervisor = Supervisor("queue")
        self._cluster = ClusterServices(settings.cluster, self._supervisor)
        self.telemetry = Telemetry(settings.telemetry, "queue", socket.gethostname(), span_exporter)
        self._metrics = self.telemetry.metrics.queue()
        self.health = HealthServer(settings.lease)
        self._probes = Probes(self.health, NATS, LEADING)
        self.server = LeaseServer(settings.lease, self)
        self._is_leading = False
        self._leases: Leases
        self._actions: QueueActions
        self._succession: Succession
        self._leader_telemetry: LeaderTelemetry

    async def start(self) -> None:
        """Waits for NATS and for its streams, for ever, saying why in the readiness probe meanwhile."""
        self._parts.callback(self.telemetry.close)
        await self.health.start()
        self._parts.push_async_callback(self.health.stop)
        log.info("metrics at http://%s/metrics, probes at %s", self.telemetry.metrics.address, self.health.address)
        connection = await connect(self._settings.broker, "headway-queue", on_change=self._on_connection)
        self._parts.push_async_callback(connection.close)
        self._supervisor.spawn("nats", fail_when_closed(connection))
        self._parts.push_async_callback(self._cluster.stop)
        await self._cluster.start(connection, self._own_status)
        intake = await self._take_over_at_last(connection)
        await self._serve(connection, intake)
        log.info("leads with epoch %d, leases at %s", self._leases.epoch, self.server.address)

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``, or until a part of it fails (`Deposed` among the reasons)."""
        await self._supervisor.run_until(stop)

    def hurry(self) -> None:
        """Its end is quick as it is."""

    async def close(self) -> None:
        """Leave word for a successor, send the workers away, then stop all else; what runs goes on at the workers."""
        self._metrics.step_down()
        await self._save_last()
        await self.server.stop()
        await self._supervisor.close()
        await self._parts.aclose()

    def status(self) -> QueueStatus:
        return self._leases.status(self._clock.now())

    def _own_status(self) -> QueueStatus | None:
        return self.status() if self._is_leading else None

    # -- taking over ---------------------------------------------------------------------------------------------

    async def _take_over_at_last(self, connection: Connection) -> JobsIntake:
        """Tries until it works; the readiness probe says why it does not."""
        while True:
            try:
                return await self._take_over(connection)
            except BrokerError as exc:
                log.warning("not ready: %s", exc)
                self._probes.failing(LEADING, str(exc))
                await asyncio.sleep(RETRY_SECONDS)

    async def _take_over(self, connection: Connection) -> JobsIntake:
        await ensure_streams(connection.js, self._settings.broker)
        store, intake = StateStore(connection.js), JobsIntake(connection)
        self._succession = Succession(store, self._settings.roles.models)
        last_seen = await self._succession.last_seen()
        epoch = await store.raise_epoch(above=await intake.latest_epoch())
        queues = await self._succession.queues(self._settings.queue)
        await intake.takeover(epoch)
        self._parts.push_async_callback(intake.close)
        self._leases = Leases(epoch, queues, self._settings.lease_terms, self._clock.now(), last_seen)
        return intake

    async def _serve(self, connection: Connection, intake: JobsIntake) -> None:
        """Everything that runs while this process leads. Workers are let in once all jobs of the stream are in the
        queue, so that its policy chooses from all of them."""
        self._leader_telemetry = LeaderTelemetry(self.telemetry.tracer, self._metrics, self._clock)
        self._actions = QueueActions(
            self._leases, intake, connection, self.server, self._leader_telemetry, self._supervisor, self._clock
        )
        jobs = self._make_intake(connection, intake)
        control = ControlServer(connection, self._actions.cancel, self.status, jobs.catch_up)
        await control.start()
        self._parts.push_async_callback(control.stop)
        await self._read_stream(jobs)
        self._leases.restart_grace(self._clock.now())
        await self.server.start()
        self.server.lead()
        self._supervisor.spawn("tick", self._tick())
        self._supervisor.spawn("observe", self._observe())
        self._supervisor.spawn("save", self._save())
        self._probes.met(LEADING)
        self._is_leading = True

    def _make_intake(self, connection: Connection, intake: JobsIntake) -> QueueIntake:
        return QueueIntake(
            self._settings.broker,
            frozenset(self._settings.roles.models),
            intake,
            connection,
            self._leases,
            self._actions,
            self._leader_telemetry,
            self._supervisor,
            self._clock,
        )

    async def _read_stream(self, jobs: QueueIntake) -> None:
        """Returns once every job that lay in the stream is in the queue; those that come later follow by themselves."""
        self._probes.failing(LEADING, "reading the stream of jobs")
        caught_up = asyncio.Event()
        self._supervisor.spawn("intake", jobs.run(caught_up.set))
        await self._supervisor.run_until(caught_up)

    def _on_connection(self, state: ConnectionState) -> None:
        if state.connected:
            self._probes.met(NATS)
        else:
            self._probes.failing(NATS, state.reason)

    # -- the lease stream: called by the server ------------------------------------------------------------------

    def connected(self, stream: int, hello: Hello) -> None:
        self._actions.carry_out(self._leases.connect(stream, hello, self._clock.now()))

    def received(self, stream: int, message: WorkerMessage) -> None:
        if isinstance(message, Demand):
            self._leader_telemetry.asked(stream, message)
        outstanding = self._leases.find(message.key) if isinstance(message, Ended) else None
        actions = self._leases.receive(stream, message, self._clock.now())
        self._actions.carry_out(actions)
        if isinstance(message, Ended) and outstanding and any(isinstance(action, Settle) for action in actions):
            self._leader_telemetry.ended(outstanding, message.finish_reason)

    def disconnected(self, stream: int) -> None:
        self._leader_telemetry.disconnected(stream)
        self._actions.carry_out(self._leases.disconnect(stream, self._clock.now()))

    # -- what comes with time ------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._actions.carry_out(self._leases.tick(self._clock.now()))
            await asyncio.sleep(TICK_SECONDS)

    async def _observe(self) -> None:
        while True:
            self._metrics.observe(self.status())
            await asyncio.sleep(OBSERVE_SECONDS)

    async def _save(self) -> None:
        while True:
            await asyncio.sleep(self._settings.roles.save_seconds)
            try:
                await self._succession.save(self._leases, self._clock.now())
            except BrokerError as exc:
                log.warning("%s; trying again", exc)

    async def _save_last(self) -> None:
        """Who is connected now is whom the next leader waits for. A deposed one has nothing to say any more."""
        if not self._is_leading or self._supervisor.has_failed:
            return
        self._is_leading = False
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._succession.save(self._leases, self._clock.now())
                await self._actions.finish()
        except (BrokerError, TimeoutError) as exc:
            log.warning("stops without saving everything: %s", exc or "NATS does not answer")
