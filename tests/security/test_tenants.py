"""What a tenant that means harm can do to another, and to Headway: nothing, on a real server with accounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import nats.errors
import pytest
from nats.aio.msg import Msg

from headway.broker.connection import Connection
from headway.broker.joblog import WRITE_HEADER
from headway.broker.log_reader import LogReader
from headway.broker.replay_service import ReplayServer
from headway.broker.streams import DEAD, JOBS, RESULTS, STATE
from headway.core.job import JobKey
from headway.core.records import End, Tokens

Login = Callable[[str], Awaitable[Connection]]

TOKENS = b'{"kind":"tokens","seq":0,"token_start":0,"token_ids":[5],"text":"secret"}'
END = b'{"kind":"end","finish_reason":"stop"}'
FOREIGN = [
    "headway.jobs.default.bob",
    "headway.log.acme.a1",
    "headway.log.bob.b1",
    "headway.results.bob.b1",
    "headway.dead.bob.b1",
    "headway.cancel.bob.b1",
    "headway.replay.bob.b1",
    "headway.status",
    "$KV.HEADWAY_STATE.epoch",
    "$JS.API.STREAM.PURGE.HEADWAY_RESULTS",
    "$JS.API.STREAM.DELETE.HEADWAY_JOBS",
    "$JS.ACK.HEADWAY_JOBS.queue-1.1.1.1.1.0",
]
"""Where a tenant must not get through to, neither by a message nor by the answer to one."""


@dataclass
class World:
    """Bob's job has run; the queue, the operator and bob listen to all that they may hear."""

    queue: Connection
    acme: Connection
    bob: Connection
    heard: list[str] = field(default_factory=list)

    async def state(self) -> dict[str, tuple[int, int]]:
        names = (JOBS, RESULTS, DEAD, STATE)
        states = {name: (await self.queue.js.stream_info(name)).state for name in names}
        return {name: (state.messages, state.last_seq) for name, state in states.items()}

    async def settle(self) -> None:
        """Everything that was sent has arrived, through all accounts and back."""
        for connection in (self.acme, self.queue, self.bob):
            await connection.client.flush()
        await self.state()
        for connection in (self.acme, self.queue, self.bob):
            await connection.client.flush()

    async def listen(self, connection: Connection, *subjects: str) -> None:
        async def hear(message: Msg) -> None:
            self.heard.append(message.subject)

        for subject in subjects:
            await connection.client.subscribe(subject, cb=hear)
        await connection.client.flush()


@pytest.fixture
async def world(login: Login) -> AsyncIterator[World]:
    queue, worker, operator = await login("queue"), await login("worker"), await login("operator")
    world = World(queue, await login("acme"), await login("bob"))
    await world.bob.js.publish("headway.jobs.default.bob", b'{"id":"b1"}')
    for tenant, job in (("bob", "b1"), ("acme", "a1")):
        for record in (TOKENS, END):
            await worker.js.publish(f"headway.log.{tenant}.{job}", record, headers={WRITE_HEADER: "w"})
    server = ReplayServer(worker)
    await server.start()
    await worker.client.flush()
    await world.listen(queue, "headway.cancel.*.*", "headway.status")
    await world.listen(operator, "headway.results.*.*", "headway.dead.*.*")
    await world.listen(world.bob, "headway.results.bob.*", "headway.dead.bob.*", "_INBOX.>")
    yield world
    await server.stop()


async def refused(connection: Connection, subject: str, body: bytes) -> bool:
    """Whether the request comes to nothing: nobody is there to answer it, or the answer is an error."""
    try:
        answer = await connection.client.request(subject, body, timeout=0.2)
    except nats.errors.Error:
        return True
    return "error" in json.loads(answer.data)


async def read(connection: Connection, key: JobKey) -> list[type]:
    reader = LogReader(connection, key)
    await reader.open(from_start=True)
    async with asyncio.timeout(20):
        return [type(stored.record) async for stored in reader]


async def test_a_tenant_has_all_that_it_needs(world: World) -> None:
    await world.acme.js.publish("headway.jobs.default.acme", b'{"id":"a2"}')
    assert (await world.state())[JOBS][0] == 2
    assert await read(world.acme, JobKey("acme", "a1")) == [Tokens, End]
    live: list[Msg] = []

    async def hear(message: Msg) -> None:
        live.append(message)

    await world.acme.client.subscribe("headway.results.acme.a2", cb=hear)
    await world.acme.client.flush()
    await world.queue.js.publish("headway.log.acme.a2", TOKENS)
    await world.settle()
    assert [(message.data, (message.headers or {})["Nats-Last-Sequence"]) for message in live] == [(TOKENS, "0")]


@pytest.mark.parametrize("subject", FOREIGN)
async def test_a_message_to_what_is_not_its_own_changes_nothing(world: World, subject: str) -> None:
    before = await world.state()
    await world.acme.client.publish(subject, TOKENS, reply=f"{world.acme.client.new_inbox()}")
    await world.settle()
    assert (await world.state(), world.heard) == (before, [])


@pytest.mark.parametrize("reply", FOREIGN)
@pytest.mark.parametrize("request_subject", ["headway.jobs.default.acme", "headway.replay.acme.a1"])
async def test_an_answer_goes_to_nobody_else_whatever_reply_subject_is_named(
    world: World, request_subject: str, reply: str
) -> None:
    """The acknowledgement of a stream and the answer of a process are sent with rights that the tenant has not. (Of the
    subjects here the server itself refuses one as a reply subject.)"""
    before = await world.state()
    await world.acme.client.publish(request_subject, b"{}", reply=reply)
    await world.settle()
    after = await world.state()
    is_taken = request_subject.startswith("headway.jobs") and not reply.startswith("$JS.ACK")
    num_jobs = 1 if is_taken else 0
    expected = {**before, JOBS: (before[JOBS][0] + num_jobs, before[JOBS][1] + num_jobs)}
    assert (after, world.heard) == (expected, [])


@pytest.mark.parametrize("filtered", ["headway.log.acme.a1", "headway.log.bob.b1", "headway.log.>"])
@pytest.mark.parametrize("deliver", ["own inbox", "headway.cancel.bob.b1", "headway.jobs.default.bob", None])
async def test_a_tenant_can_create_no_consumer(world: World, filtered: str, deliver: str | None) -> None:
    inbox = world.acme.client.new_inbox()
    config = {"name": "mine", "filter_subject": filtered, "ack_policy": "none", "deliver_policy": "all"}
    if deliver is not None:
        config["deliver_subject"] = inbox if deliver == "own inbox" else deliver
    body = json.dumps({"stream_name": RESULTS, "config": config}).encode()
    for subject in (f"CREATE.{RESULTS}.mine.{filtered}", f"CREATE.{RESULTS}.mine", f"DURABLE.CREATE.{RESULTS}.mine"):
        assert await refused(world.acme, f"$JS.API.CONSUMER.{subject}", body)
    assert await world.queue.js.consumers_info(RESULTS) == []
    assert world.heard == []


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("headway.replay.bob.b1", b""),
        ("headway.replay.acme.*", b""),
        ("$JS.API.DIRECT.GET.HEADWAY_RESULTS.headway.log.bob.b1", b""),
        ("$JS.API.DIRECT.GET.HEADWAY_RESULTS.headway.log.*.b1", b""),
        ("$JS.API.DIRECT.GET.HEADWAY_RESULTS.headway.log.acme.a1", b'{"last_by_subj":"headway.log.bob.b1"}'),
        ("$JS.API.DIRECT.GET.HEADWAY_RESULTS", b'{"last_by_subj":"headway.log.bob.b1"}'),
        ("$JS.API.STREAM.MSG.GET.HEADWAY_RESULTS", b'{"last_by_subj":"headway.log.bob.b1"}'),
        ("$JS.API.STREAM.MSG.GET.HEADWAY_JOBS", b'{"last_by_subj":"headway.jobs.default.bob"}'),
        ("$JS.API.STREAM.INFO.HEADWAY_RESULTS", b'{"subjects_filter":">"}'),
        ("$JS.API.DIRECT.GET.KV_HEADWAY_STATE.$KV.HEADWAY_STATE.epoch", b""),
        ("headway.status", b""),
    ],
)
async def test_a_request_for_what_is_not_its_own_brings_nothing(world: World, subject: str, body: bytes) -> None:
    try:
        answer = (await world.acme.client.request(subject, body, timeout=0.5)).data
    except nats.errors.Error:
        return
    assert b"secret" not in answer
    assert b"bob" not in answer
    assert answer == b"" or "error" in json.loads(answer)


@pytest.mark.parametrize(
    "subject", [">", "headway.>", "headway.results.>", "headway.results.bob.b2", "headway.log.>", "headway.jobs.>"]
)
async def test_a_tenant_hears_nothing_of_another(world: World, subject: str) -> None:
    overheard: list[bytes] = []

    async def hear(message: Msg) -> None:
        if b"_INBOX" not in message.subject.encode():
            overheard.append(message.data)

    await world.acme.client.subscribe(subject, cb=hear)
    await world.acme.client.flush()
    await world.bob.js.publish("headway.jobs.default.bob", b'{"id":"b2"}')
    await world.queue.js.publish("headway.log.bob.b2", TOKENS)
    await world.settle()
    assert overheard == []


async def test_a_worker_can_neither_make_nor_empty_streams_nor_submit(login: Login, world: World) -> None:
    worker = await login("worker")
    before = await world.state()
    for subject in (
        "STREAM.CREATE.X",
        "STREAM.UPDATE.HEADWAY_JOBS",
        "STREAM.DELETE.HEADWAY_JOBS",
        "STREAM.PURGE.HEADWAY_DEAD",
    ):
        with pytest.raises(nats.errors.Error):
            await worker.client.request(f"$JS.API.{subject}", b"{}", timeout=0.2)
    for subject in ("headway.jobs.default.bob", "headway.dead.bob.b1", "$KV.HEADWAY_STATE.epoch"):
        await worker.client.publish(subject, b"{}")
    await worker.client.flush()
    assert await world.state() == before


async def test_nobody_gets_in_without_a_password(login: Login) -> None:
    acme = await login("acme")
    client = nats.NATS()
    with pytest.raises(nats.errors.Error):
        await client.connect(acme.client.connected_url.geturl(), allow_reconnect=False, connect_timeout=2)
