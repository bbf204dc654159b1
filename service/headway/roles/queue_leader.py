"""One leadership of a queue process: from the takeover to its last word. It is made anew for every leadership.

    raise the epoch, take the consumer over ─▶ read the stream ─▶ let the workers in, grant ─▶ leave word

All durable state is in NATS: a leader builds itself from the stream and from what the workers say they hold. What it
may do only as the leader it does under ``leads``, a look at the clock: a process that was paused may go on in the
middle of anything, when another one has been leading for long. (Should it be late all the same, the epoch stops it:
workers refuse it, and it can neither fetch nor ack.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from headway.broker.connection import Connection
from headway.broker.control import ControlServer
from headway.broker.epoch_proof import EpochProof
from headway.broker.intake import JobsIntake
from headway.broker.state import StateStore
from headway.broker.troubles import Troubles
from headway.core.errors import BrokerError
from headway.core.lease_actions import Settle
from headway.core.lease_messages import Demand, Ended, Hello, LeaderMessage, WorkerMessage
from headway.core.leases import Leases
from headway.core.status import QueueStatus
from headway.lease.server import LeaseServer
from headway.roles.leader_telemetry import LeaderTelemetry
from headway.roles.queue_actions import QueueActions
from headway.roles.queue_intake import QueueIntake
from headway.roles.quiet_heap import QuietHeap
from headway.roles.succession import Succession
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock
from headway.settings import Settings
from headway.telemetry.queue_metrics import QueueMetrics
from headway.telemetry.tracing import JobTracer

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
OBSERVE_SECONDS = 1.0
LAST_WORD_SECONDS = 3.0


class QueueLeader:
    """`run` does the work. In between, the lease server's callbacks come in."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        server: LeaseServer,
        tracer: JobTracer,
        metrics: QueueMetrics,
        leads: Callable[[], bool],
        heap: QuietHeap,
        troubles: Troubles,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._server = server
        self._metrics = metrics
        self._leads = leads
        self._heap = heap
        self._troubles = troubles
        self._clock = WallClock()
        self._telemetry = LeaderTelemetry(tracer, metrics, self._clock)
        self._store = StateStore(connection.js)
        self._succession = Succession(self._store, settings.roles.models, leads)
        self._parts = AsyncExitStack()
        self._supervisor = Supervisor("leader")
        self.is_serving = False
        """Workers are let in."""
        self._workers: dict[int, str] = {}
        """The names of those that are connected, by stream."""
        self._leases: Leases
        self._actions: QueueActions

    @property
    def epoch(self) -> int:
        return self._leases.epoch

    def status(self) -> QueueStatus:
        return self._leases.status(self._clock.now())

    async def run(
        self, holding: Coroutine[Any, Any, None], on_stage: Callable[[str | None], None], stop: asyncio.Event
    ) -> None:
        """Until ``stop``, or until ``holding`` (the election's word) or a part fails; raises why.

        ``on_stage`` hears what it is busy with before it can grant, and then None.
        """
        self._supervisor.spawn("hold", holding)
        self._supervisor.spawn("lead", self._take_over_and_serve(on_stage))
        await self._supervisor.run_until(stop)

    async def close(self) -> None:
        """Leave word for the successor, if this process still leads; what runs goes on at the workers."""
        self._metrics.step_down()
        await self._save_last()
        self.is_serving = False
        await self._supervisor.close()
        await self._parts.aclose()

    # -- taking over ---------------------------------------------------------------------------------------------

    async def _take_over_and_serve(self, on_stage: Callable[[str | None], None]) -> None:
        """Workers are let in once all jobs of the stream are in the queue, so that its policy chooses from them all."""
        on_stage("taking over")
        intake = await self._take_over()
        self._actions = self._make_actions(intake)
        on_stage("reading the stream of jobs")
        jobs = self._make_intake(intake)
        caught_up = asyncio.Event()
        self._supervisor.spawn("intake", jobs.run(caught_up.set))
        await caught_up.wait()
        control = ControlServer(
            self._connection, self._actions.cancel, self.status, jobs.catch_up, may_answer=self._leads
        )
        self._parts.push_async_callback(control.stop)
        await control.start()
        self._let_workers_in()
        on_stage(None)

    async def _take_over(self) -> JobsIntake:
        intake = JobsIntake(self._connection)
        last_seen = await self._succession.last_seen()
        epoch = await self._store.raise_epoch(above=await intake.latest_epoch())
        queues = await self._succession.queues(self._settings.queue)
        self._parts.push_async_callback(intake.close)
        await intake.takeover(epoch)
        self._leases = Leases(epoch, queues, self._settings.lease_terms, self._clock.now(), last_seen)
        return intake

    def _make_actions(self, intake: JobsIntake) -> QueueActions:
        return QueueActions(
            self._leases,
            intake,
            self._connection,
            EpochProof(self._store, self.epoch),
            self._troubles,
            self,
            self._telemetry,
            self._supervisor,
            self._clock,
        )

    def _make_intake(self, intake: JobsIntake) -> QueueIntake:
        return QueueIntake(
            self._settings.broker,
            frozenset(self._settings.roles.models),
            intake,
            self._leases,
            self._actions,
            self._telemetry,
            self._supervisor,
            self._clock,
            self._heap,
        )

    def _let_workers_in(self) -> None:
        self._leases.restart_grace(self._clock.now())
        self._supervisor.spawn("tick", self._tick())
        self._supervisor.spawn("observe", self._observe())
        self._supervisor.spawn("save", self._save())
        self.is_serving = True
        self._server.lead()

    # -- the lease stream: to the workers ------------------------------------------------------------------------

    def send(self, stream: int, message: LeaderMessage) -> None:
        """The one way to a worker. What is decided and not sent is of no account: this leadership is over then."""
        if self._may_serve():
            self._server.send(stream, message)

    def drop(self, stream: int, reason: str) -> None:
        self._server.drop(stream, reason)

    # -- the lease stream: from the workers ----------------------------------------------------------------------

    def connected(self, stream: int, hello: Hello) -> None:
        if self._may_serve():
            self._workers[stream] = hello.name
            log.info("worker %s connects (model %s, holds %d jobs)", hello.name, hello.model, len(hello.held))
            self._actions.carry_out(self._leases.connect(stream, hello, self._clock.now()))
        else:
            self._server.drop(stream, "this process does not lead any more")

    def received(self, stream: int, message: WorkerMessage) -> None:
        if not self._may_serve():
            return
        if isinstance(message, Demand):
            self._telemetry.asked(stream)
        outstanding = self._leases.find(message.key) if isinstance(message, Ended) else None
        actions = self._leases.receive(stream, message, self._clock.now())
        self._actions.carry_out(actions)
        if isinstance(message, Ended) and outstanding and any(isinstance(action, Settle) for action in actions):
            self._telemetry.ended(outstanding, message.finish_reason)

    def disconnected(self, stream: int) -> None:
        if name := self._workers.pop(stream, None):
            log.info("worker %s has left", name)
        if self.is_serving:
            self._telemetry.disconnected(stream)
            self._actions.carry_out(self._leases.disconnect(stream, self._clock.now()))

    def _may_serve(self) -> bool:
        return self.is_serving and self._leads()

    # -- what comes with time ------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            if self._leads():
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
        """Who is connected now is whom the next leader waits for."""
        if not self._may_serve() or self._supervisor.has_failed:
            return
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                await self._succession.save(self._leases, self._clock.now())
                await self._actions.finish()
        except (BrokerError, TimeoutError) as exc:
            log.warning("stops without saving everything: %s", str(exc) or "NATS does not answer")
