"""The queue process: one of several, of which one leads and the others stand by.

    connect ─▶ check streams ─▶ campaign ──────▶ lead (`QueueLeader`): take over, grant ──┐
                                   ▲   follows: sends workers to the leader               │ lock lost, deposed, failed
                                   └──────────────────────────────────────────────────────┘

A follower is ready too: it answers workers with the leader's address, and knows when there is none. A leader that
finds itself deposed, or that cannot renew its lock in time, stops leading and stands by like the others. Only without
an election does it end with an error instead: nothing would keep two such processes from deposing each other for ever.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import socket
from contextlib import AsyncExitStack

from opentelemetry.sdk.trace.export import SpanExporter

from headway.broker.connection import Connection, ConnectionState, connect
from headway.broker.election import KeyValueLock
from headway.broker.errors import Deposed
from headway.broker.replay_service import ReplayServer
from headway.broker.streams import ensure_streams
from headway.core.election import ElectionKind, LeaderLock
from headway.core.errors import BrokerError
from headway.core.lease_messages import Hello, WorkerMessage
from headway.core.status import QueueStatus
from headway.lease.health import HealthServer
from headway.lease.server import LeaseServer
from headway.roles.broker_watch import fail_when_closed
from headway.roles.cluster_services import ClusterServices, with_pod_address
from headway.roles.election import Election, LeadershipLost, LockElection, Unopposed
from headway.roles.probes import Probes
from headway.roles.queue_leader import QueueLeader
from headway.roles.quiet_heap import QuietHeap
from headway.roles.stream_watch import StreamWatch
from headway.roles.supervisor import Supervisor
from headway.settings import Settings
from headway.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

NATS, LEADER = "nats", "leader"
"""The conditions of readiness, beside those of `StreamWatch`."""
RETRY_SECONDS = 2.0
NOBODY_LEADS = "no queue process leads now"


class QueueRole:
    """One queue process. `start` returns once it leads and grants jobs, or knows who does."""

    def __init__(self, settings: Settings, span_exporter: SpanExporter | None = None) -> None:
        lease = with_pod_address(settings.lease, settings.cluster.pod_ip)
        self._settings = settings = dataclasses.replace(settings, lease=lease)
        self._parts = AsyncExitStack()
        self._supervisor = Supervisor("queue")
        self._cluster = ClusterServices(settings.cluster, self._supervisor)
        self.telemetry = Telemetry(settings.telemetry, "queue", socket.gethostname(), span_exporter)
        self._metrics = self.telemetry.metrics.queue()
        self.health = HealthServer(settings.lease)
        self._probes = Probes(self.health, NATS, LEADER, on_condition=self.telemetry.metrics.process.condition)
        self.server = LeaseServer(settings.lease, self)
        self.server.follow(None)
        self._heap = QuietHeap()
        self._streams = StreamWatch(settings.broker, self._probes)
        self._leader: QueueLeader | None = None
        """Set while this process leads."""
        self._election: Election = Unopposed()
        self._serving: asyncio.Task[None] | None = None
        self._has_its_place = asyncio.Event()
        self._stop = asyncio.Event()

    async def start(self) -> None:
        """Waits for NATS, its streams and a leader, for ever, saying why in the readiness probe meanwhile."""
        self._parts.callback(self.telemetry.close)
        await self.health.start()
        self._parts.push_async_callback(self.health.stop)
        log.info("metrics at http://%s/metrics, probes at %s", self.telemetry.metrics.address, self.health.address)
        await self.server.start()
        self._parts.push_async_callback(self.server.stop)
        connection = await connect(self._settings.broker, "headway-queue", on_change=self._on_connection)
        self._parts.push_async_callback(connection.close)
        self._supervisor.spawn("nats", fail_when_closed(connection))
        self._supervisor.spawn("streams", self._streams.run(connection))
        replays = ReplayServer(connection)
        await replays.start()
        self._parts.push_async_callback(replays.stop)
        self._parts.push_async_callback(self._cluster.stop)
        self._election = await self._make_election(connection)
        await self._cluster.start(connection, self._own_status)
        self._serving = self._supervisor.spawn("serve", self._lead_and_follow(connection))
        await self._supervisor.run_until(self._has_its_place)

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``, or until a part of it fails."""
        await self._supervisor.run_until(stop)

    def hurry(self) -> None:
        """Its end is quick as it is."""

    async def close(self) -> None:
        """A leader grants nothing more, leaves word for its successor and makes way for it; then all else stops."""
        self._stop.set()
        if self._serving is not None:
            if self._leader is None:
                self._serving.cancel()
            await asyncio.wait((self._serving,))
        await self._election.step_down()
        await self._supervisor.close()
        await self._parts.aclose()
        log.info("the queue has stopped")

    @property
    def is_leading(self) -> bool:
        """Whether it grants jobs."""
        return self._leader is not None and self._leader.is_serving and self._election.leads()

    @property
    def epoch(self) -> int:
        """Of its leadership; only for a leader, as `status`."""
        return self._leadership.epoch

    def status(self) -> QueueStatus:
        return self._leadership.status()

    def _own_status(self) -> QueueStatus | None:
        """For those who ask the cluster's way; None: ask who leads."""
        return self.status() if self.is_leading else None

    @property
    def _leadership(self) -> QueueLeader:
        assert self._leader is not None, "this process does not lead"
        return self._leader

    # -- leading and following -----------------------------------------------------------------------------------

    async def _make_election(self, connection: Connection) -> Election:
        config = self._settings.election
        if config.election is ElectionKind.NONE:
            return Unopposed()
        holder = f"{self._settings.cluster.pod_name or socket.gethostname()}-{secrets.token_hex(8)}"
        lock: LeaderLock = KeyValueLock(connection)
        if config.election is ElectionKind.KUBERNETES:
            lock = await self._cluster.lease_lock()
        return LockElection(lock, holder, self.server.address, config, self._on_leader)

    async def _lead_and_follow(self, connection: Connection) -> None:
        """Campaigns, leads, and begins again when that has ended; the readiness probe says why it does not lead."""
        while not self._stop.is_set():
            self._heap.forget()
            try:
                await ensure_streams(connection.js, self._settings.broker)
                await self._election.campaign()
                await self._lead(connection)
            except LeadershipLost as exc:
                log.warning("leads no longer: %s", exc)
            except BrokerError as exc:
                if isinstance(exc, Deposed) and not self._election.is_contested:
                    raise
                log.warning("not ready: %s", exc)
                self._probes.failing(LEADER, str(exc))
                await asyncio.sleep(RETRY_SECONDS)

    async def _lead(self, connection: Connection) -> None:
        """One leadership. However it ends, grants end first, and the others may lead last."""
        tracer, leads = self.telemetry.tracer, self._election.leads
        leader = QueueLeader(
            self._settings, connection, self.server, tracer, self._metrics, leads, self._heap, self._streams.troubles
        )
        self._leader = leader
        try:
            await leader.run(self._election.hold(), self._on_stage, self._stop)
        finally:
            self._leader = None
            self.server.follow(None)
            self._probes.failing(LEADER, NOBODY_LEADS)
            try:
                await leader.close()
            finally:
                await self._election.step_down()

    def _on_stage(self, stage: str | None) -> None:
        """Of the leader on its way: what it does, and None when it grants."""
        if stage is not None:
            self._probes.failing(LEADER, stage)
            return
        log.info("leads with epoch %d, leases at %s", self.epoch, self.server.address)
        self._probes.met(LEADER)
        self._has_its_place.set()

    def _on_leader(self, address: str | None) -> None:
        """The election's word on who leads. A leader on its way says by `_on_stage` what it does."""
        if self._election.leads():
            return
        self.server.follow(address)
        if address is None:
            self._probes.failing(LEADER, NOBODY_LEADS)
            return
        log.info("stands by; %s leads", address)
        self._probes.met(LEADER)
        self._has_its_place.set()

    def _on_connection(self, state: ConnectionState) -> None:
        if state.connected:
            self._probes.met(NATS)
        else:
            self._probes.failing(NATS, state.reason)

    # -- the lease stream: called by the server ------------------------------------------------------------------

    def connected(self, stream: int, hello: Hello) -> None:
        if self._leader is None:
            self.server.drop(stream, "this process does not lead any more")
        else:
            self._leader.connected(stream, hello)

    def received(self, stream: int, message: WorkerMessage) -> None:
        if self._leader is not None:
            self._leader.received(stream, message)

    def disconnected(self, stream: int) -> None:
        if self._leader is not None:
            self._leader.disconnected(stream)
