"""The leader's side of the lease stream: which worker holds which job.

    waiting ──Grant──▶ leased ──Ended──▶ settled
       ▲                  │
       └─ Returned, lost ─┘      cancelled, expired, out of attempts ──WriteEnd──▶ ending ──▶ settled

A message about a job acts only if it comes from the worker that holds the job and names the lease's own grant;
anything else is late and changes nothing. So a repeat is harmless, and a job that comes back by several ways (handed
back, stream lost, missing from a report) comes back once. Grants and messages may get lost with a stream: a hello and
every `Progress` list what the worker holds, and the difference heals.

The machine is pure: inputs come with the time, and each returns the actions that the role then carries out in order.
What a crash loses of it is rebuilt by a takeover: the jobs from the stream, the leases from the workers' hellos.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headway.core.figures import Figures, worker_status
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, DeadReason, Drop, GiveWay, Send, WriteDead
from headway.core.lease_messages import (
    Demand,
    Ended,
    Grant,
    HeldJob,
    Hello,
    Progress,
    Recall,
    Refused,
    Returned,
    Welcome,
    WorkerMessage,
)
from headway.core.lease_terms import LeaseTerms
from headway.core.leased import NO_DEMAND, Lease, Roster, Worker
from headway.core.outstanding import OutstandingJob, OutstandingJobs, cancel_leased
from headway.core.queue import JobQueue
from headway.core.queued_job import QueuedJob
from headway.core.recall import leases_to_recall
from headway.core.records import GrantToken
from headway.core.status import LastSeen, QueueStatus
from headway.core.waiting_jobs import TakenJob


class Leases:
    """The state machine. ``now`` is the wall clock in seconds (as deadlines are), kept by the role from going back."""

    def __init__(
        self,
        epoch: int,
        queues: Mapping[str, JobQueue],
        terms: LeaseTerms,
        now: float,
        last_seen: LastSeen,
    ) -> None:
        """Granting starts when all workers ``last_seen`` have said hello (so at once if there were none), or when
        ``grace_seconds`` are over."""
        self.epoch = epoch
        self._terms = terms
        self._jobs = OutstandingJobs(queues, terms)
        self._roster = Roster()
        self._grace_until = now + terms.grace_seconds
        self._missing_workers = None if last_seen.workers is None else set(last_seen.workers)
        self._figures = Figures(last_seen.capacities)
        self._num_grants = 0

    def restart_grace(self, now: float) -> None:
        """The grace begins now: before, workers could not say hello, since the stream was still being read."""
        self._grace_until = now + self._terms.grace_seconds

    # -- jobs ----------------------------------------------------------------------------------------------------

    def find(self, key: JobKey) -> OutstandingJob | None:
        """The outstanding job of this identity: waiting, leased or ending."""
        return self._jobs.find(key)

    @property
    def num_outstanding(self) -> int:
        """Jobs that have no stored end yet."""
        return len(self._jobs)

    def num_outstanding_bytes(self, tenant: str) -> int:
        """Of the payloads of the tenant's outstanding jobs."""
        return self._jobs.num_bytes(tenant)

    def add(self, model: str, job: QueuedJob, now: float) -> list[Action]:
        """A job of the stream. One that is outstanding already is a repeat or a conflict, and is settled as such."""
        known = self._jobs.find(job.key)
        if known is not None:
            return self._jobs.add_again(known, OutstandingJob(model, job))
        self._jobs.took_in(job)
        claimant = self._claimant(model, job.key)
        if claimant is not None:
            held = claimant.claims.pop(job.key)
            self._adopt(claimant, held, job, now)
            return []
        self._jobs.waiting[model].add(job, now)
        return self._assign(model, now)

    def cancel(self, key: JobKey) -> list[Action]:
        """End the job as ``cancelled``, wherever it is. One `CancelAnswer` follows, when its end is stored."""
        return self._jobs.cancel(key)

    def ended_by_leader(self, key: JobKey, finish_reason: FinishReason) -> list[Action]:
        """`WriteEnd` was carried out. ``finish_reason``: what the log holds now (it may have had an end before)."""
        return self._jobs.settle_ending(key, finish_reason)

    # -- workers -------------------------------------------------------------------------------------------------

    def connect(self, stream: int, hello: Hello, now: float) -> list[Action]:
        """A worker's first message on a stream: it keeps what it holds, and what it lost on the way comes back."""
        if hello.model not in self._jobs.waiting:
            served = ", ".join(sorted(self._jobs.waiting))
            return [Drop(stream, f"model {hello.model!r} is not served by this queue, which serves: {served}")]
        if hello.newest_epoch > self.epoch:
            return [GiveWay(hello.newest_epoch)]
        former = self._roster.find(hello.incarnation)
        actions: list[Action] = []
        if former is not None and former.stream is not None:
            actions.append(Drop(former.stream, "the worker has a newer stream"))
        if self._missing_workers is not None:
            self._missing_workers.discard(hello.incarnation)
        worker = self._roster.connect(stream, hello, now)
        self._meet(hello.model)
        self._figures.saw(hello)
        actions.append(Send(stream, Welcome(self.epoch, self._terms.lease_seconds)))
        return actions + self._reconcile(worker, hello, now) + self._assign_all(now)

    def receive(self, stream: int, message: WorkerMessage, now: float) -> list[Action]:
        """Any message of a worker. Streams that are not a worker's newest are ignored."""
        if isinstance(message, Hello):
            return self.connect(stream, message, now)
        worker = self._roster.at(stream)
        if worker is None:
            return []
        worker.heard_at = now
        return self._hear(worker, message, now) + self._assign(worker.hello.model, now)

    def disconnect(self, stream: int, now: float) -> list[Action]:
        """The stream is gone; its worker has ``lease_seconds`` to come back, if it holds anything."""
        worker = self._roster.disconnect(stream, now)
        if worker is not None and not worker.leases and not worker.claims:
            self._remove(worker)
        elif worker is not None:
            self._meet(worker.hello.model)
        return []

    def tick(self, now: float) -> list[Action]:
        """What comes with time: lost workers, deadlines, the end of the grace, recalls. About once a second."""
        actions: list[Action] = []
        for worker in self._roster.silent(now - self._terms.lease_seconds):
            actions += self._lose(worker, now)
        actions += self._assign_all(now)
        for model in self._jobs.waiting:
            actions += self._recall(model, now)
        return actions

    def is_granting(self, now: float) -> bool:
        return self._missing_workers == set() or now >= self._grace_until

    # -- what is so ----------------------------------------------------------------------------------------------

    def last_seen(self) -> LastSeen:
        """For a successor; store it every few seconds."""
        return LastSeen(frozenset(worker.hello.incarnation for worker in self._roster), self._figures.capacities)

    def counters(self) -> dict[str, dict[str, float]]:
        """The fairness counters by model, to be stored as often."""
        return {model: waiting.queue.counters() for model, waiting in self._jobs.waiting.items()}

    def status(self, now: float) -> QueueStatus:
        models = tuple(
            self._figures.of_model(model, waiting, self._jobs.leased(model), now)
            for model, waiting in self._jobs.waiting.items()
        )
        return QueueStatus(self.epoch, self.is_granting(now), models, tuple(map(worker_status, self._roster)))

    # -- what a message changes ----------------------------------------------------------------------------------

    def _hear(self, worker: Worker, message: WorkerMessage, now: float) -> list[Action]:
        match message:
            case Demand():
                worker.hear_demand(message)
            case Progress():
                return self._hear_progress(worker, message, now)
            case Ended() | Returned() | Refused():
                worker.claims.pop(message.key, None)
                lease = worker.lease_under(message.key, message.grant)
                return [] if lease is None else self._close(lease, message, now)
        return []

    def _close(self, lease: Lease, message: Ended | Returned | Refused, now: float) -> list[Action]:
        """The worker no longer holds the job. Who gives one back has to ask anew, or it would come again at once."""
        match message:
            case Ended():
                return self._jobs.settle_leased(lease, message.num_output_tokens, message.finish_reason)
            case Refused(conflict=True):
                settled = self._jobs.settle_leased(lease, None, FinishReason.REJECTED)
                return [WriteDead(lease.model, lease.job, DeadReason.CONFLICT), *settled]
        lease.worker.demand = NO_DEMAND
        num_lost_attempts = message.num_lost_attempts if isinstance(message, Returned) else 0
        actions = self._jobs.take_back(lease, num_lost_attempts, now)
        if isinstance(message, Refused) and message.newest_epoch > self.epoch:
            actions.append(GiveWay(message.newest_epoch))
        return actions

    def _hear_progress(self, worker: Worker, progress: Progress, now: float) -> list[Action]:
        worker.load = progress.load
        for job in progress.jobs:
            lease = worker.lease_under(job.key, job.grant)
            if lease is not None and job.started:
                lease.started = True
                queue = self._jobs.waiting[lease.model].queue
                queue.report(lease.job, job.num_prompt_tokens, job.num_cached_tokens, job.num_output_tokens)
        return self._take_back_missing(worker, {(job.key, job.grant) for job in progress.jobs}, now)

    def _take_back_missing(
        self, worker: Worker, held: Collection[tuple[JobKey, GrantToken]], now: float
    ) -> list[Action]:
        """Leases that the worker must know of by now and does not hold: a grant or an `Ended` was lost on the way."""
        actions: list[Action] = []
        for lease in list(worker.leases.values()):
            if (lease.job.key, lease.token) not in held and not worker.is_in_flight(lease):
                actions += self._jobs.take_back(lease, 0, now)
        return actions

    def _reconcile(self, worker: Worker, hello: Hello, now: float) -> list[Action]:
        """Make the leases of a worker that (re)connects what it says it holds."""
        actions = self._take_back_missing(worker, {(held.key, held.grant) for held in hello.held}, now)
        for lease in worker.leases.values():
            lease.is_recalled = False
            actions += cancel_leased(lease)
        for held in hello.held:
            if held.key not in worker.leases:
                actions += self._hear_held(worker, held, now)
        return actions

    def _hear_held(self, worker: Worker, held: HeldJob, now: float) -> list[Action]:
        """A job that the worker holds and that we did not grant to it, or took for lost: its own, if nobody has it."""
        if self._jobs.find(held.key) is None:
            worker.claims[held.key] = held
            return []
        job = self._jobs.waiting[worker.hello.model].discard(held.key)
        if job is None:
            assert worker.stream is not None
            return [Send(worker.stream, Recall(held.key, held.grant))]
        self._adopt(worker, held, job, now)
        return []

    def _adopt(self, worker: Worker, held: HeldJob, job: QueuedJob, now: float) -> None:
        """The job goes on under its old grant. Has a newer one written to its log, the worker is refused there."""
        if held.grant.epoch == self.epoch:
            job.num_lost_attempts = max(0, job.num_lost_attempts - 1)  # our own grant, which was not lost after all
        model = worker.hello.model
        self._jobs.hold(Lease(model, job, held.grant, worker, now, was_granted_here=False, started=held.started))

    def _claimant(self, model: str, key: JobKey) -> Worker | None:
        claimants = [worker for worker in self._roster.of_model(model) if key in worker.claims]
        return max(claimants, key=lambda worker: worker.claims[key].grant, default=None)

    def _lose(self, worker: Worker, now: float) -> list[Action]:
        actions: list[Action] = []
        if worker.stream is not None:
            actions.append(Drop(worker.stream, f"silent for {self._terms.lease_seconds} s"))
        self._remove(worker)
        self._figures.lost(worker.hello.model, len(worker.leases))
        for lease in list(worker.leases.values()):
            actions += self._jobs.take_back(lease, lease.job.num_lost_attempts + 1, now)
        return actions

    def _remove(self, worker: Worker) -> None:
        self._roster.remove(worker)
        self._jobs.waiting[worker.hello.model].leave(worker)
        self._meet(worker.hello.model)

    def _meet(self, model: str) -> None:
        self._jobs.waiting[model].meet(self._roster.connected(model))

    # -- granting ------------------------------------------------------------------------------------------------

    def _assign_all(self, now: float) -> list[Action]:
        return [action for model in self._jobs.waiting for action in self._assign(model, now)]

    def _assign(self, model: str, now: float) -> list[Action]:
        """Grant while a worker has room, each time to the emptiest one, so that load spreads."""
        waiting = self._jobs.waiting[model]
        if not waiting:
            return []
        actions: list[Action] = []
        for job in waiting.expire(now):
            actions += self._jobs.end(model, job, FinishReason.EXPIRED)
        connected = self._roster.connected(model) if self.is_granting(now) else []
        candidates = [worker for worker in connected if worker.free_sequences > 0]
        while candidates and waiting:
            worker = min(candidates, key=lambda worker: worker.fullness)
            taken = waiting.take(worker, now)
            if taken is not None:
                actions.append(self._grant(worker, taken, now))
            if taken is None or worker.free_sequences <= 0:
                candidates.remove(worker)
        return actions

    def _grant(self, worker: Worker, taken: TakenJob, now: float) -> Action:
        assert worker.stream is not None
        self._num_grants += 1
        self._figures.granted(worker.hello.model)
        token = GrantToken(self.epoch, self._num_grants)
        lease = Lease(worker.hello.model, taken.job, token, worker, now, taken.alone)
        self._jobs.hold(lease)
        worker.in_flight_pages[token.number] = worker.pages_for(taken.job)
        return Send(worker.stream, _grant_message(lease))

    def _recall(self, model: str, now: float) -> list[Action]:
        if self._jobs.waiting[model]:
            return []
        actions: list[Action] = []
        for lease in leases_to_recall(self._roster.connected(model), now - self._terms.recall_seconds):
            assert lease.worker.stream is not None
            lease.is_recalled = True
            actions.append(Send(lease.worker.stream, Recall(lease.job.key, lease.token)))
        return actions


def _grant_message(lease: Lease) -> Grant:
    job, now = lease.job, lease.granted_at
    return Grant(
        key=job.key,
        token=lease.token,
        stream_sequence=job.stream_sequence,
        payload=b"",
        arrival_seconds=job.arrival_seconds,
        queue_seconds=max(0.0, now - job.arrival_seconds),
        deadline_seconds=None if job.expires_at is None else job.expires_at - now,
        alone=lease.alone,
        num_lost_attempts=job.num_lost_attempts,
        traceparent=job.traceparent,
    )
