"""What people are told while nothing comes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from headway.broker.client import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.control import ControlServer
from headway.commands import patience
from headway.commands.patience import Patience
from headway.core.job import JobKey
from headway.core.status import QueueStatus, WorkerCapacity, WorkerStatus

WORKER = WorkerStatus("i", "w", "chat", True, WorkerCapacity(1, 16), 1, 0, 0, None)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """People wonder, and ask again, at once."""
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(patience, "MAX_QUIET_SECONDS", 0.02)


@pytest.fixture
def told(monkeypatch):
    """Every line."""
    lines = []
    monkeypatch.setattr(patience.click, "echo", lambda line, **_: lines.append(line))
    return lines


@asynccontextmanager
async def leader(url, *workers):
    """Answers for the status, and says how often it was asked."""
    asked = asyncio.Semaphore(0)

    def status():
        asked.release()
        return QueueStatus(1, True, (), workers)

    async with await connect(BrokerConfig(nats_url=url), "leader", timeout_seconds=10) as connection:
        server = ControlServer(connection, None, status, None)
        await server.start()
        yield asked
        await server.stop()


async def was_asked(asked, times=3):
    async with asyncio.timeout(10):
        for _ in range(times):
            await asked.acquire()


async def test_a_model_without_a_worker_is_named_once(fresh_nats, told):
    async with (
        leader(fresh_nats.url, WORKER) as asked,
        Client.connect(fresh_nats.url) as client,
        Patience(client, "other"),
    ):
        await was_asked(asked)
    assert told == ["headway: waiting: no worker of model other is connected"]


async def test_nothing_is_said_while_a_worker_is_there(fresh_nats, told):
    async with (
        leader(fresh_nats.url, WORKER) as asked,
        Client.connect(fresh_nats.url) as client,
        Patience(client, "chat"),
    ):
        await was_asked(asked)
    assert told == []


async def test_a_job_of_which_nothing_came_may_never_have_been(fresh_nats, told):
    async with (
        leader(fresh_nats.url, WORKER) as asked,
        Client.connect(fresh_nats.url) as client,
        Patience(client, job=JobKey("acme", "nope")),
    ):
        await was_asked(asked)
    (line,) = told
    assert "acme/nope" in line


async def test_a_wait_that_ends_with_news_ends_at_once(fresh_nats, monkeypatch):
    monkeypatch.setattr(patience, "QUIET_SECONDS", 60.0)
    async with Client.connect(fresh_nats.url) as client, asyncio.timeout(10), Patience(client, "chat") as waiting:
        await asyncio.sleep(0)
        waiting.heard()


async def test_a_queue_that_does_not_run_is_told(fresh_nats, told, eventually):
    async with Client.connect(fresh_nats.url) as client, Patience(client, "chat"):
        await eventually(lambda: told == ["headway: waiting: no queue process is running"])


async def test_a_broker_that_goes_away_is_told(own_nats, told, eventually):
    async with Client.connect(own_nats.url) as client, Patience(client, "chat"):
        await own_nats.stop()
        await eventually(lambda: any(own_nats.url in line for line in told))


async def test_a_job_of_which_something_came_is_waited_for_in_silence(fresh_nats, told):
    async with (
        leader(fresh_nats.url, WORKER) as asked,
        Client.connect(fresh_nats.url) as client,
        Patience(client, job=JobKey("acme", "a1")) as waiting,
    ):
        waiting.heard()
        await was_asked(asked)
    assert told == []
