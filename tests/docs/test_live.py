"""What the pages say, done: the README's program runs, and NATS permissions as in docs/wire.md are enough and hold."""

import asyncio
import dataclasses
import json
import re
import sys
from contextlib import asynccontextmanager

import nats
import pytest

from headway import Client
from headway.broker.config import BrokerConfig
from headway.broker.connection import connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.joblog import LogState
from headway.broker.log_pace import Pace
from headway.broker.log_store import JobLogs
from headway.broker.log_writer import LogWriter
from headway.core.job import FinishReason, JobKey
from headway.core.lease_actions import CancelOutcome
from headway.core.records import Attempt, End, GrantToken
from headway.lease.config import LeaseConfig
from headway.roles.local import LocalRole
from headway.roles.queue import QueueRole
from headway.settings import Settings

SETTINGS = Settings(lease=LeaseConfig(lease_listen="127.0.0.1:0"))
TIMEOUT_SECONDS = 60.0


async def test_the_program_of_the_readme_runs_on_the_default_model(readme, tmp_path):
    (program,) = readme.section("The Python client").blocks("python")
    async with LocalRole(SETTINGS, tmp_path) as local:
        program = program.replace("nats://127.0.0.1:4222", local.nats.url)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert re.search(r"\[(stop|length), \d+ tokens\]", output.decode())
    assert output.decode().endswith("\ncancelled\n")


# -- permissions -----------------------------------------------------------------------------------------------------


def user(name, wire, *parties):
    """A user of the server's configuration, allowed what the table says of these parties."""
    rows = [row for row in wire.section("Permissions").rows("party") if row[0].removeprefix("… ") in parties]
    assert len(rows) == len(parties)
    publish, subscribe = ([subject for row in rows for subject in re.findall(r"`(.+?)`", row[i])] for i in (1, 2))
    permissions = {
        "publish": publish,
        "subscribe": [*subscribe, f"_INBOX_{name}.>"],
        "allow_responses": "replies to requests" in rows[0][1],
    }
    return {"user": name, "password": name, "permissions": permissions}


def config(server, name):
    return BrokerConfig(
        nats_url=server.url, nats_user=name, nats_password=name, nats_inbox_prefix=f"_INBOX_{name}", create_streams=True
    )


@pytest.fixture
async def server(wire, tmp_path):
    """A NATS server with a user for each party."""
    users = [
        user("acme", wire, "a client of tenant `acme`"),
        user("operator", wire, "operators"),
        user("roles", wire, "queue and workers"),
    ]
    async with EmbeddedNats(tmp_path / "nats", extra_config=f"authorization: {json.dumps({'users': users})}") as server:
        yield server


@asynccontextmanager
async def running_queue(server):
    role = QueueRole(dataclasses.replace(SETTINGS, broker=config(server, "roles")))
    try:
        await role.start()
        yield role
    finally:
        await role.close()


async def test_the_permissions_are_enough_for_everybody(server):
    """A client submits, streams, reads late and cancels; the queue leads; a worker writes; an operator looks."""
    async with running_queue(server), Client.connect(tenant="acme", config=config(server, "acme")) as client:
        rejected = await client.submit("Hello", model="nobody").result(TIMEOUT_SECONDS)
        assert rejected.error.code == "unknown_model"
        assert await client.result(rejected.id, TIMEOUT_SECONDS) == rejected

        await write_log(config(server, "roles"), JobKey("acme", "late"))
        assert (await client.result("late", TIMEOUT_SECONDS)).text == "Hello"

        waiting = await client.submit("Hello")
        assert (await client.cancel(waiting.id)).outcome is CancelOutcome.CANCELLED
        async with Client.connect(config=config(server, "operator")) as operator:
            assert (await operator.status()).epoch == 1


async def write_log(broker, key):
    """What a worker writes."""
    async with await connect(broker, "worker", timeout_seconds=TIMEOUT_SECONDS) as connection:
        writer = LogWriter(JobLogs(connection), LogState(key), Pace())
        await writer.attempt(Attempt(1, GrantToken(1, 1), "worker", "a" * 64))
        writer.tokens([1], "Hello")
        await writer.end(End(FinishReason.LENGTH))


async def test_a_client_can_neither_write_logs_nor_act_as_another_tenant(server, eventually):
    refused = set()

    async def on_error(error):
        refused.add(re.search(r'"(.+?)"', str(error))[1])

    client = await nats.connect(server.url, user="acme", password="acme", error_cb=on_error)
    await client.publish("headway.log.acme.a1", b"{}")
    await client.publish("headway.jobs.default.zeta", b"{}")
    await client.publish("headway.cancel.zeta.a1", b"")
    await client.subscribe("headway.results.zeta.>")
    await client.subscribe("headway.>")
    wrong = {
        *("headway.log.acme.a1", "headway.jobs.default.zeta", "headway.cancel.zeta.a1"),
        *("headway.results.zeta.>", "headway.>"),
    }
    await eventually(lambda: refused == wrong)
    await client.close()
