"""A queue process around the real `Leases`: what `roles.queue` and `roles.queue_actions` do, one step at a time.

The clock stands still. A lease runs out, the grace ends or a recall is due when the search says so: in every order that
real clocks could give, and more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, CancelAnswer, DeadReason, Drop, Send, Settle, WriteDead, WriteEnd
from headway.core.lease_messages import Hello, LeaderMessage, WorkerMessage
from headway.core.lease_terms import LeaseTerms
from headway.core.leases import Leases
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob
from headway.core.status import LastSeen
from tests.core.leases.search.logs import HASH
from tests.core.leases.search.state import KEYS
from tests.core.leases.search.worker import MODEL

NOW = 0.0
TERMS = LeaseTerms(max_attempts=2, max_shared_attempts=1)
"""Short of the defaults, so that few faults suffice to see a job granted alone, and one that is dead."""


@dataclass(frozen=True, slots=True)
class DropStream:
    """The leader closes the stream."""


Out = tuple[Any, LeaderMessage | DropStream]
"""Stream (by name here, where the real ones have numbers) and message."""


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to do with the broker about one job; ``reason`` of an end that is to be written, None: an ack."""

    reason: FinishReason | None


@dataclass(frozen=True, slots=True)
class LeaderFacts:
    is_granting: bool
    incarnations: tuple[str, ...]
    """The workers that it knows."""
    num_grants: int
    next_work: tuple[tuple[JobKey, Work], ...]
    jobs: frozenset[JobKey]
    """Those that it will bring to an end, or acknowledge."""
    is_asked: bool
    """Somebody waits for the answer to a cancel."""
    fault: str | None
    """What is wrong with it; None: nothing."""


@dataclass
class LeaderProcess:
    """One leader; ``work`` is what it has still to do with the broker, by job and in order."""

    leases: Leases
    work: dict[JobKey, list[Work]] = field(default_factory=dict)
    answers: set[JobKey] = field(default_factory=set)
    """Cancels that are not answered yet."""

    @classmethod
    def take_over(cls, make: type[Leases], epoch: int, keys: list[JobKey], workers: frozenset[str]) -> LeaderProcess:
        """It has read the stream before it lets workers in; they are those that the last leader saw."""
        leases = make(epoch, {MODEL: JobQueue(QueueConfig())}, TERMS, NOW, LastSeen(workers))
        for key in keys:
            leases.add(MODEL, queued(key), NOW)
        return cls(leases)

    # -- events; each returns what goes out to the streams

    def publish(self, key: JobKey) -> list[Out]:
        return self._carry_out(self.leases.add(MODEL, queued(key), NOW))

    def hear(self, stream: Any, message: WorkerMessage) -> list[Out]:
        if isinstance(message, Hello):
            return self._carry_out(self.leases.connect(stream, message, NOW))
        return self._carry_out(self.leases.receive(stream, message, NOW))

    def lose_stream(self, stream: Any) -> list[Out]:
        return self._carry_out(self.leases.disconnect(stream, NOW))

    def miss(self, incarnation: str) -> list[Out]:
        """The worker was silent for the length of a lease."""
        worker = self.leases._roster.find(incarnation)
        assert worker is not None
        worker.heard_at = NOW - TERMS.lease_seconds
        return self._carry_out(self.leases.tick(NOW))

    def end_grace(self) -> list[Out]:
        self.leases.restart_grace(NOW - TERMS.grace_seconds)
        return self._carry_out(self.leases.tick(NOW))

    def recall(self) -> list[Out]:
        """Some time has passed, in which nothing else happened."""
        actions = self.leases.tick(NOW + TERMS.recall_seconds)
        for worker in self.leases._roster:
            for lease in worker.leases.values():
                lease.granted_at = NOW
        return self._carry_out(actions)

    def cancel(self, key: JobKey) -> list[Out]:
        self.answers.add(key)
        return self._carry_out(self.leases.cancel(key))

    def end_written(self, key: JobKey, finish_reason: FinishReason) -> list[Out]:
        """The job's end stands in its log, by this leader or by somebody who was faster."""
        self._done(key)
        return self._carry_out(self.leases.ended_by_leader(key, finish_reason))

    def acked(self, key: JobKey) -> list[Out]:
        self._done(key)
        return []

    def _done(self, key: JobKey) -> None:
        self.work[key].pop(0)
        if not self.work[key]:
            del self.work[key]

    def _carry_out(self, actions: list[Action]) -> list[Out]:
        outs: list[Out] = []
        for action in actions:
            match action:
                case Send(stream, message):
                    outs.append((stream, message))
                case Drop(stream):
                    outs.append((stream, DropStream()))
                case WriteEnd(job, reason):
                    self.work.setdefault(job.key, []).append(Work(reason))
                case Settle(job):
                    self.work.setdefault(job.key, []).append(Work(None))
                case CancelAnswer(key):
                    self.answers.discard(key)
                case WriteDead(reason=reason):
                    assert reason is DeadReason.ATTEMPTS_EXHAUSTED
        return outs

    # -- what the search asks

    def facts(self) -> LeaderFacts:
        return LeaderFacts(
            is_granting=self.leases.is_granting(NOW),
            incarnations=tuple(worker.hello.incarnation for worker in self.leases._roster),
            num_grants=self.leases._num_grants,
            next_work=tuple((key, works[0]) for key, works in self.work.items()),
            jobs=frozenset(key for key in KEYS if self.leases.find(key) is not None or key in self.work),
            is_asked=bool(self.answers),
            fault=self._fault(),
        )

    def _fault(self) -> str | None:
        jobs = self.leases._jobs
        leased = [lease for worker in self.leases._roster for lease in worker.leases.values()]
        if {id(lease) for lease in leased} != {id(lease) for lease in jobs._leases.values()}:
            return "a leader's two lists of leases differ"
        if any(worker.runs_alone and len(worker.leases) > 1 for worker in self.leases._roster):
            return "a job that is to run alone has company"
        keys = [*jobs._leases, *jobs._ending, *jobs.waiting[MODEL].queue._waiting]
        keys += [job.key for job in jobs.waiting[MODEL].beside_the_queue]
        return "a job is in two places at once" if len(keys) != len(set(keys)) else None


def queued(key: JobKey) -> QueuedJob:
    return QueuedJob(key, int(key.id), NOW, num_prompt_tokens=1, max_tokens=1, payload_hash=HASH)
