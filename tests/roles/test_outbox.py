"""A payload that takes its time holds back what must not overtake it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from headway.broker.errors import BrokerUnavailable, MessageMissing
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import Drop, Send
from headway.core.lease_messages import CancelJob, Grant, LeaderMessage, Recall, Welcome
from headway.core.outstanding import OutstandingJob
from headway.core.queued_job import QueuedJob
from headway.core.records import GrantToken
from headway.roles.outbox import MAX_FETCHES, Outbox
from headway.roles.supervisor import Supervisor
from headway.roles.wall_clock import WallClock

Eventually = Callable[..., Awaitable[None]]


@dataclass
class Clock(WallClock):
    seconds: float = 1000.0

    def now(self) -> float:
        return self.seconds


@dataclass
class Office:
    """An outbox, with all that it needs at hand: `jobs` has the queue's, `arrived` the payloads that NATS gives out."""

    supervisor: Supervisor
    clock: Clock = field(default_factory=Clock)
    jobs: dict[str, QueuedJob] = field(default_factory=dict)
    arrived: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    """Stream sequences whose payloads NATS was asked for."""
    errors: list[Exception] = field(default_factory=list)
    """Of NATS, instead of payloads."""
    sent: list[tuple[int, str]] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self, self._find, self._get_payload, lambda *_: "trace", self.supervisor, self.clock)

    def send(self, stream: int, message: LeaderMessage) -> None:
        what = type(message).__name__.lower()
        if isinstance(message, Grant):
            self.grants.append(message)
        key = getattr(message, "key", None)
        self.sent.append((stream, what if key is None else f"{what} {key.id}"))

    def drop(self, stream: int, reason: str) -> None:
        self.sent.append((stream, "drop"))

    def job(self, name: str, payload: bytes | None = b"held", expires_at: float | None = None) -> None:
        sequence = len(self.jobs) + 1
        key = JobKey("acme", name)
        self.jobs[name] = QueuedJob(key, sequence, 900.0, 1, 1, expires_at=expires_at, payload=payload)
        self.arrived[sequence] = asyncio.get_running_loop().create_future()

    def grant(self, stream: int, name: str, deadline_seconds: float | None = None) -> None:
        job = self.jobs[name]
        token = GrantToken(1, len(self.sent) + 1)
        self.put(stream, Grant(job.key, token, job.stream_sequence, b"", 900.0, 100.0, deadline_seconds))

    def put(self, stream: int, message: LeaderMessage) -> None:
        self.outbox.put(Send(stream, message))

    def arrive(self, name: str, payload: bytes = b"fetched") -> None:
        self.arrived[self.jobs[name].stream_sequence].set_result(payload)

    def _find(self, key: JobKey) -> OutstandingJob | None:
        return OutstandingJob("default", self.jobs[key.id]) if key.id in self.jobs else None

    async def _get_payload(self, sequence: int) -> bytes:
        self.asked.append(sequence)
        if self.errors:
            raise self.errors.pop(0)
        return await asyncio.shield(self.arrived[sequence])


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    supervisor = Supervisor("test")
    yield Office(supervisor)
    await supervisor.close()


def about(name: str, kind: type[Recall] | type[CancelJob]) -> Recall | CancelJob:
    key, token = JobKey("acme", name), GrantToken(1, 1)
    return Recall(key, token) if kind is Recall else CancelJob(key, token, FinishReason.CANCELLED)


async def test_a_grant_with_its_payload_at_hand_goes_out_at_once(office: Office) -> None:
    office.job("a")
    office.grant(1, "a")
    assert office.sent == [(1, "grant a")]
    assert (office.grants[0].payload, office.grants[0].traceparent) == (b"held", "trace")


async def test_a_payload_on_its_way_holds_back_neither_other_workers_nor_other_jobs(office: Office) -> None:
    office.job("late", payload=None)
    office.job("b")
    office.grant(1, "late")
    office.grant(2, "b")
    office.put(1, about("running", CancelJob))
    office.put(1, about("waiting", Recall))
    office.put(3, Welcome(1, 10.0))
    office.outbox.put(Drop(4, "silent"))
    assert office.sent == [(2, "grant b"), (1, "canceljob running"), (1, "recall waiting"), (3, "welcome"), (4, "drop")]


@pytest.mark.parametrize("kind", [Recall, CancelJob])
async def test_what_is_said_of_a_job_follows_its_grant(
    office: Office, kind: type[Recall] | type[CancelJob], eventually: Eventually
) -> None:
    office.job("late", payload=None)
    office.grant(1, "late")
    office.put(1, about("late", kind))
    assert office.sent == []
    office.arrive("late")
    await eventually(lambda: office.sent == [(1, "grant late"), (1, f"{kind.__name__.lower()} late")])
    assert office.grants[0].payload == b"fetched"


async def test_the_grants_of_one_worker_keep_their_order(office: Office, eventually: Eventually) -> None:
    """It takes rising numbers only."""
    office.job("late", payload=None)
    office.job("b")
    office.job("later", payload=None)
    for name in ("late", "b", "later"):
        office.grant(1, name)
    office.arrive("later")
    office.put(1, about("b", CancelJob))
    assert office.sent == []
    office.arrive("late")
    await eventually(lambda: len(office.sent) == 4)
    assert office.sent == [(1, "grant late"), (1, "grant b"), (1, "grant later"), (1, "canceljob b")]
    office.grant(1, "b")
    assert office.sent[4:] == [(1, "grant b")]


async def test_the_payloads_behind_the_first_are_fetched_meanwhile_up_to_a_number(
    office: Office, eventually: Eventually
) -> None:
    names = [f"late{number}" for number in range(MAX_FETCHES + 2)]
    for name in names:
        office.job(name, payload=None)
        office.grant(1, name)
    await eventually(lambda: len(office.asked) == MAX_FETCHES)
    assert office.asked == list(range(1, MAX_FETCHES + 1))
    for name in reversed(names):
        office.arrive(name)
    await eventually(lambda: len(office.sent) == len(names))
    assert office.sent == [(1, f"grant {name}") for name in names]
    assert office.asked == list(range(1, len(names) + 1)), "each once"


async def test_a_leader_that_ends_fetches_no_more(office: Office, eventually: Eventually) -> None:
    for name in ("late", "later"):
        office.job(name, payload=None)
        office.grant(1, name)
    await eventually(lambda: len(office.asked) == 2)
    await office.supervisor.close()
    await eventually(lambda: not any("fetch" in task.get_name() for task in asyncio.all_tasks()))


async def test_a_grant_says_how_many_seconds_are_left_when_it_goes_out(office: Office, eventually: Eventually) -> None:
    office.job("late", payload=None, expires_at=1010.0)
    office.job("b", expires_at=1003.0)
    office.grant(1, "late", deadline_seconds=10.0)
    office.grant(1, "b", deadline_seconds=3.0)
    office.clock.seconds += 4.0
    office.arrive("late")
    await eventually(lambda: len(office.sent) == 2)
    assert [grant.deadline_seconds for grant in office.grants] == [6.0, 0.0]


async def test_a_payload_is_asked_for_until_it_comes_or_is_known_to_be_gone(
    office: Office, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.roles.outbox.RETRY_SECONDS", 0.0)
    office.job("late", payload=None)
    office.errors = [BrokerUnavailable("read", "away"), MessageMissing("read", 404, 10037, "gone")]
    office.grant(1, "late")
    await eventually(lambda: office.sent == [(1, "grant late")])
    assert office.grants[0].payload == b""
