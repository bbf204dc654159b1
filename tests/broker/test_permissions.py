"""A missing permission is told at once, and as what it is; NATS tells it apart from the request that it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.control import request_cancel, request_status
from headway.broker.dead import DeadLetters
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import BrokerRefused
from headway.broker.job_publish import publication, publish_job
from headway.core.job import JobKey

USERS = """authorization { users = [ { user: tenant, password: secret, permissions: {
    publish: ["headway.jobs.*.acme", "echo", "_INBOX.>"], subscribe: ["headway.results.acme.*", "echo", "_INBOX.>"]
} } ] }"""
TIMEOUT_SECONDS = 60.0
"""Of the requests here: nobody who waits for it sees it within a test's own time."""
Work = Callable[[Connection], Awaitable[Any]]

OPERATIONS: dict[str, tuple[Work, str]] = {
    "publish": (
        lambda connection: publish_job(connection, publication("default", "bob", b"{}"), TIMEOUT_SECONDS),
        "headway.jobs.default.bob",
    ),
    "status": (lambda connection: request_status(connection, TIMEOUT_SECONDS), "headway.status"),
    "cancel": (
        lambda connection: request_cancel(connection, JobKey("bob", "Job1"), TIMEOUT_SECONDS),
        "headway.cancel.bob.Job1",
    ),
    "dead": (lambda connection: DeadLetters(connection).read(), "CONSUMER.CREATE.HEADWAY_DEAD"),
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    async with EmbeddedNats(tmp_path / "nats", extra_config=USERS) as server:
        yield server


def settings(server: EmbeddedNats, **fields: Any) -> BrokerConfig:
    return BrokerConfig(
        nats_url=server.url,
        nats_user="tenant",
        nats_password="secret",
        nats_timeout_seconds=TIMEOUT_SECONDS,
        **fields,
    )


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_what_may_not_be_asked_is_refused_at_once_with_the_subject_and_the_fix(
    server: EmbeddedNats, operation: str
) -> None:
    work, subject = OPERATIONS[operation]
    async with await connect(settings(server), "tests") as connection, asyncio.timeout(20):
        with pytest.raises(BrokerRefused) as caught:
            await work(connection)
    assert subject in str(caught.value)
    assert "credentials" in caught.value.description
    assert caught.value.code is None


async def test_a_job_under_another_tenant_and_its_results_are_refused_to_a_client(server: EmbeddedNats) -> None:
    async with Client.connect(tenant="bob", config=settings(server)) as client, asyncio.timeout(20):
        with pytest.raises(BrokerRefused, match=r"headway\.jobs\.default\.bob"):
            await client.submit("Hello")
        with pytest.raises(BrokerRefused, match="results of bob/b1"):
            await client.result("b1")


async def test_an_inbox_that_the_user_may_not_read_is_named_with_its_setting(server: EmbeddedNats) -> None:
    config = settings(server, nats_inbox_prefix="_INBOX_other")
    async with await connect(config, "tests") as connection, asyncio.timeout(20):
        for _ in range(2):
            with pytest.raises(BrokerRefused, match="nats_inbox_prefix"):
                await publish_job(connection, publication("default", "acme", b"{}"), TIMEOUT_SECONDS)


async def test_a_refusal_leaves_a_request_for_something_else_alone(server: EmbeddedNats) -> None:
    async with await connect(settings(server), "tests") as connection, asyncio.timeout(20):
        asked: asyncio.Queue[Msg] = asyncio.Queue()
        await connection.client.subscribe("echo", cb=asked.put)
        waiting = asyncio.create_task(connection.client.request("echo", b"", timeout=TIMEOUT_SECONDS))
        question = await asked.get()
        with pytest.raises(BrokerRefused):
            await request_status(connection, TIMEOUT_SECONDS)
        await question.respond(b"answer")
        assert (await waiting).data == b"answer"
