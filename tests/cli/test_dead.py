"""Dead jobs as people look at them and queue them again."""

import json

import pytest

from headway.broker.connection import connect
from headway.broker.dead import DeadLetter, DeadLetters
from headway.broker.streams import ensure_streams
from headway.core.job import JobKey

PAYLOAD = {"id": "a1", "prompt": "Hello", "max_tokens": 4}


def letter(sequence: int, tenant: str = "acme", payload: bytes = json.dumps(PAYLOAD).encode()) -> DeadLetter:
    return DeadLetter(JobKey(tenant, "a1"), "default", "attempts_exhausted", payload, sequence, 3)


@pytest.fixture
async def broker(broker_config):
    """A connection to a server with three dead jobs."""
    async with await connect(broker_config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, broker_config)
        dead = DeadLetters(connection)
        await dead.put(letter(1))
        await dead.put(letter(2, tenant="other"))
        await dead.put(letter(3, tenant="broken", payload=b"no json"))
        yield connection


@pytest.fixture
def dead(broker_config, headway):
    """``headway dead …``"""
    return lambda *arguments: headway("dead", *arguments, HEADWAY_NATS_URL=broker_config.nats_url)


async def test_dead_jobs_are_listed_with_the_reason(broker, dead):
    out = dead("list").stdout
    assert [line.split()[1] for line in out.splitlines()] == ["acme/a1", "other/a1", "broken/a1"]
    assert "3 attempts  attempts_exhausted" in out
    (found,) = map(json.loads, dead("list", "--tenant", "other", "--json").stdout.splitlines())
    assert (found["tenant"], found["payload"]) == ("other", PAYLOAD)


async def test_a_dead_job_is_shown_with_its_payload(broker, dead):
    shown = json.loads(dead("show", "acme/a1").stdout)
    assert shown["payload"] == PAYLOAD
    assert (shown["reason"], shown["num_attempts"], shown["model"]) == ("attempts_exhausted", 3, "default")


async def test_a_dead_job_is_queued_again_as_a_new_one(broker, dead):
    out = dead("requeue", "acme/a1").stdout
    message = await broker.js.get_last_msg("HEADWAY_JOBS", "headway.jobs.default.acme")
    again = json.loads(message.data or b"")
    assert again["id"] != "a1"
    assert again["id"].startswith("a1-")
    assert again == {**PAYLOAD, "id": again["id"]}
    assert f"queued again as acme/{again['id']}" in out


@pytest.mark.parametrize(("job", "words"), [("acme/never", "not among the dead jobs"), ("broken/a1", "cannot be read")])
async def test_what_cannot_be_queued_again_is_said(broker, dead, job, words):
    answer = dead("requeue", job)
    assert answer.returncode != 0
    assert words in answer.stderr
