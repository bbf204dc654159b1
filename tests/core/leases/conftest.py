"""A leader on virtual time: the real state machine over a real queue, and a book of what it asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Action, CancelAnswer, Drop, Send, Settle, WriteDead, WriteEnd
from headway.core.lease_messages import Demand, Ended, Grant, HeldJob, Hello, JobProgress, Progress, WorkerLoad
from headway.core.lease_terms import LeaseTerms
from headway.core.leases import Leases
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob
from headway.core.status import LastSeen

LOAD = WorkerLoad(num_running=0, num_waiting=0, num_free_pages=100, step_seconds=0.01)


def make_hello(name: str = "w1", held: Sequence[HeldJob] = (), **facts: Any) -> Hello:
    facts = {"model": "m", "page_size": 16, "num_pages": 100, "max_num_seqs": 4} | facts
    return Hello(incarnation=name, name=name, held=tuple(held), **facts)


@dataclass
class FakeLeader:
    """Streams are numbered as they open; ``now`` is set by the test."""

    epoch: int = 1
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    last_seen: LastSeen = field(default_factory=lambda: LastSeen(workers=frozenset()))
    models: tuple[str, ...] = ("m",)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.queues = {model: JobQueue(QueueConfig()) for model in self.models}
        self.leases = Leases(self.epoch, self.queues, self.terms, self.now, self.last_seen)
        self.num_jobs = 0
        self.num_streams = 0

    def job(self, id: str = "", **facts: Any) -> QueuedJob:
        self.num_jobs += 1
        facts = {"num_prompt_tokens": 15, "max_tokens": 10, "payload_hash": "h"} | facts
        key = JobKey("acme", id or f"job{self.num_jobs}")
        return QueuedJob(key=key, stream_sequence=self.num_jobs, arrival_seconds=self.now, **facts)

    def add(self, id: str = "", **facts: Any) -> tuple[QueuedJob, list[Action]]:
        job = self.job(id, **facts)
        return job, self.leases.add("m", job, self.now)

    def connect(self, hello: Hello | None = None, demand: int | None = None) -> tuple[int, list[Action]]:
        """A worker with room for ``demand`` sequences (by default as many as it runs at most; 0: no demand yet)."""
        self.num_streams += 1
        stream, hello = self.num_streams, hello or make_hello()
        actions = self.leases.connect(stream, hello, self.now)
        num_sequences = hello.max_num_seqs - len(hello.held) if demand is None else demand
        if num_sequences:
            actions += self.receive(stream, Demand(num_sequences, hello.num_pages))
        return stream, actions

    def receive(self, stream: int, message: Any) -> list[Action]:
        return self.leases.receive(stream, message, self.now)

    def disconnect(self, stream: int) -> list[Action]:
        return self.leases.disconnect(stream, self.now)

    def ended(self, stream: int, grant: Grant, reason: FinishReason = FinishReason.STOP) -> list[Action]:
        return self.receive(stream, Ended(grant.key, grant.token, reason, 5))

    def progress(self, stream: int, *started: Grant, waiting: Sequence[Grant] = ()) -> list[Action]:
        """Everything that the worker holds."""
        jobs = [JobProgress(grant.key, grant.token, True, 15, 0, 1) for grant in started]
        jobs += [JobProgress(grant.key, grant.token, False, 0, 0, 0) for grant in waiting]
        return self.receive(stream, Progress(tuple(jobs), LOAD))

    def tick(self, seconds: float = 0.0) -> list[Action]:
        self.now += seconds
        return self.leases.tick(self.now)

    def lose(self, stream: int) -> list[Action]:
        """The worker dies, and its lease runs out."""
        return self.disconnect(stream) + self.tick(self.terms.lease_seconds)

    @property
    def num_leased(self) -> int:
        return sum(model.num_leased_jobs for model in self.leases.status(self.now).models)

    @property
    def num_waiting(self) -> int:
        return sum(model.num_waiting_jobs for model in self.leases.status(self.now).models)


def messages_in(actions: Sequence[Action], kind: type) -> list[Any]:
    return [action.message for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


class Book:
    """Picks what a test looks for out of actions."""

    @staticmethod
    def grants(actions: Sequence[Action]) -> list[Grant]:
        return messages_in(actions, Grant)

    @staticmethod
    def messages(actions: Sequence[Action], kind: type) -> list[Any]:
        return messages_in(actions, kind)

    @staticmethod
    def streams_granted(actions: Sequence[Action]) -> list[int]:
        return [action.stream for action in actions if isinstance(action, Send) and isinstance(action.message, Grant)]

    @staticmethod
    def settled(actions: Sequence[Action]) -> list[QueuedJob]:
        return [action.job for action in actions if isinstance(action, Settle)]

    @staticmethod
    def ends(actions: Sequence[Action]) -> list[WriteEnd]:
        return [action for action in actions if isinstance(action, WriteEnd)]

    @staticmethod
    def dead(actions: Sequence[Action]) -> list[WriteDead]:
        return [action for action in actions if isinstance(action, WriteDead)]

    @staticmethod
    def answers(actions: Sequence[Action]) -> list[CancelAnswer]:
        return [action for action in actions if isinstance(action, CancelAnswer)]

    @staticmethod
    def drops(actions: Sequence[Action]) -> list[Drop]:
        return [action for action in actions if isinstance(action, Drop)]


@pytest.fixture(scope="session")
def make_leader() -> type[FakeLeader]:
    return FakeLeader


@pytest.fixture
def leader() -> FakeLeader:
    return FakeLeader()


@pytest.fixture(scope="session")
def book() -> type[Book]:
    return Book


@pytest.fixture(scope="session")
def hello() -> Callable[..., Hello]:
    return make_hello


@pytest.fixture
def granted(leader: FakeLeader) -> tuple[int, Grant]:
    """A job in the hands of a worker: the stream and the grant."""
    leader.add("a")
    stream, actions = leader.connect()
    return stream, messages_in(actions, Grant)[0]
