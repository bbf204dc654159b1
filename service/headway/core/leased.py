"""What the leader knows of its workers and of the jobs that they hold: facts only; `leases.Leases` changes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import Demand, HeldJob, Hello, WorkerLoad
from headway.core.queued_job import QueuedJob
from headway.core.records import GrantToken

NO_DEMAND = Demand(num_sequences=0, num_pages=0)


@dataclass(slots=True, eq=False)
class Lease:
    """One job in the hands of one worker, under one grant token."""

    model: str
    job: QueuedJob
    token: GrantToken
    worker: Worker
    granted_at: float
    alone: bool = False
    was_granted_here: bool = True
    """False: adopted from a hello, so its grant number may be another leader's."""
    started: bool = False
    is_recalled: bool = False
    cancelling: FinishReason | None = None
    """The end that was asked for, once `CancelJob` was sent or is due."""


@dataclass(slots=True, eq=False)
class Worker:
    """One incarnation of a worker process, connected or within ``lease_seconds`` of its last word."""

    hello: Hello
    stream: int | None
    heard_at: float
    demand: Demand = NO_DEMAND
    load: WorkerLoad | None = None
    leases: dict[JobKey, Lease] = field(default_factory=dict)
    claims: dict[JobKey, HeldJob] = field(default_factory=dict)
    """Jobs that it says it holds and that this leader does not know (yet: it may still be reading the stream)."""
    in_flight_pages: dict[int, int] = field(default_factory=dict)
    """Pages by grant number, of the grants of this stream that the last demand has not counted."""

    @property
    def free_sequences(self) -> int:
        return self.demand.num_sequences - len(self.in_flight_pages)

    @property
    def free_pages(self) -> int:
        return self.demand.num_pages - sum(self.in_flight_pages.values())

    @property
    def spare_slots(self) -> int:
        """Sequences that it could run at once, beside what it holds."""
        return min(self.free_sequences, self.hello.max_num_seqs - len(self.leases))

    @property
    def num_slots(self) -> int:
        """Tokens that its pages hold."""
        return self.hello.num_pages * self.hello.page_size

    @property
    def fullness(self) -> float:
        return len(self.leases) / self.hello.max_num_seqs

    @property
    def runs_alone(self) -> bool:
        return any(lease.alone for lease in self.leases.values())

    def pages_for(self, job: QueuedJob) -> int:
        """The least that a job needs to start: its prompt, the output it resumes with, and one more token."""
        return -(-(job.num_tokens + 1) // self.hello.page_size)

    def lease_under(self, key: JobKey, token: GrantToken) -> Lease | None:
        """The lease that a message of this worker is about; None if the message is late."""
        lease = self.leases.get(key)
        return lease if lease is not None and lease.token == token else None

    def is_in_flight(self, lease: Lease) -> bool:
        """Whether the worker may not have received the grant yet."""
        return lease.was_granted_here and lease.token.number in self.in_flight_pages

    def forget(self, lease: Lease) -> None:
        del self.leases[lease.job.key]
        if lease.was_granted_here:
            self.in_flight_pages.pop(lease.token.number, None)

    def hear_demand(self, demand: Demand) -> None:
        self.demand = demand
        for number in [number for number in self.in_flight_pages if number <= demand.last_grant]:
            del self.in_flight_pages[number]

    def attach(self, stream: int | None, now: float) -> None:
        """Take over the stream (None: be without one); what it demanded on the last one no longer counts."""
        self.stream, self.heard_at = stream, now
        self.demand = NO_DEMAND
        self.in_flight_pages.clear()


class Roster:
    """The workers, by incarnation and by stream."""

    def __init__(self) -> None:
        self._by_incarnation: dict[str, Worker] = {}
        self._by_stream: dict[int, Worker] = {}

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._by_incarnation.values()))

    def of_model(self, model: str) -> list[Worker]:
        return [worker for worker in self if worker.hello.model == model]

    def connected(self, model: str) -> list[Worker]:
        return [worker for worker in self.of_model(model) if worker.stream is not None]

    def find(self, incarnation: str) -> Worker | None:
        return self._by_incarnation.get(incarnation)

    def at(self, stream: int) -> Worker | None:
        return self._by_stream.get(stream)

    def connect(self, stream: int, hello: Hello, now: float) -> Worker:
        """The worker that says hello, moved to its newest stream."""
        worker = self._by_incarnation.get(hello.incarnation)
        if worker is None:
            worker = self._by_incarnation[hello.incarnation] = Worker(hello, stream, now)
        elif worker.stream is not None:
            del self._by_stream[worker.stream]
        worker.hello = hello
        worker.claims.clear()
        worker.attach(stream, now)
        self._by_stream[stream] = worker
        return worker

    def disconnect(self, stream: int, now: float) -> Worker | None:
        worker = self._by_stream.pop(stream, None)
        if worker is not None:
            worker.attach(None, now)
        return worker

    def remove(self, worker: Worker) -> None:
        del self._by_incarnation[worker.hello.incarnation]
        if worker.stream is not None:
            del self._by_stream[worker.stream]

    def silent(self, since: float) -> list[Worker]:
        """Workers whose last word is not younger than ``since``."""
        return [worker for worker in self if worker.heard_at <= since]
