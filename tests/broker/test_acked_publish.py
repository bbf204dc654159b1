"""Publishing with one subscription for all acknowledgements, against a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nats.errors
import pytest
from nats.aio.msg import Msg
from nats.js.errors import APIError, NoStreamResponseError

from headway.broker.acked_publish import AckedPublisher
from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, ConnectionState, connect
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import WRONG_LAST_SEQUENCE
from headway.broker.log_store import EXPECTED_HEADER
from headway.broker.permissions import PermissionViolation
from headway.broker.streams import RESULTS, ensure_streams

SUBJECT = "headway.log.acme.a1"
LONG_SECONDS = 60.0
SHORT_SECONDS = 0.2


async def echo(connection: Connection, answer: bytes | None) -> asyncio.Queue[Msg]:
    """Somebody who hears what comes to ``echo``, and answers it if there is an answer."""
    heard: asyncio.Queue[Msg] = asyncio.Queue()

    async def hear(message: Msg) -> None:
        await heard.put(message)
        if answer is not None:
            await message.respond(answer)

    await connection.client.subscribe("echo", cb=hear)
    return heard


async def test_each_of_many_is_told_its_own_sequence(connection: Connection) -> None:
    subjects = [f"{SUBJECT}{number}" for number in range(200)]
    sequences = await asyncio.gather(*(connection.acked.publish(subject, b"x", {}) for subject in subjects))
    for subject, sequence in zip(subjects, sequences, strict=True):
        assert (await connection.js.get_msg(RESULTS, sequence)).subject == subject


async def test_a_refusal_of_the_stream_has_its_code(connection: Connection) -> None:
    with pytest.raises(APIError) as caught:
        await connection.acked.publish(SUBJECT, b"x", {EXPECTED_HEADER: "7"})
    assert caught.value.err_code == WRONG_LAST_SEQUENCE


async def test_a_subject_of_no_stream_is_told_at_once(connection: Connection) -> None:
    publisher = AckedPublisher(connection.client, LONG_SECONDS)
    with pytest.raises(NoStreamResponseError):
        await asyncio.wait_for(publisher.publish("nobody.listens", b"x", {}), 20)


async def test_silence_ends_with_the_timeout_and_only_for_those_that_were_not_answered(connection: Connection) -> None:
    await echo(connection, None)
    publisher = AckedPublisher(connection.client, SHORT_SECONDS)
    for _ in range(2):
        silent = asyncio.create_task(publisher.publish("echo", b"x", {}))
        assert await publisher.publish(SUBJECT, b"x", {}) > 0
        with pytest.raises(nats.errors.TimeoutError):
            await asyncio.wait_for(silent, 20)


async def test_a_caller_that_gave_up_leaves_nothing_behind(connection: Connection) -> None:
    heard = await echo(connection, None)
    publisher = AckedPublisher(connection.client, LONG_SECONDS)
    waiting = asyncio.create_task(publisher.publish("echo", b"x", {}))
    question = await heard.get()
    waiting.cancel()
    await asyncio.wait([waiting])
    await question.respond(b'{"seq":1}')
    assert await publisher.publish(SUBJECT, b"x", {}) == 1
    assert not publisher.num_waiting


@pytest.mark.parametrize("answer", [b"no json", b"{}", b'{"seq":"one"}'])
async def test_what_is_no_acknowledgement_is_an_error(connection: Connection, answer: bytes) -> None:
    await echo(connection, answer)
    with pytest.raises(APIError):
        await asyncio.wait_for(connection.acked.publish("echo", b"x", {}), 20)


async def test_it_goes_on_over_a_new_connection(own_nats: EmbeddedNats) -> None:
    config = BrokerConfig(nats_url=own_nats.url, nats_reconnect_seconds=0.05)
    lost, reconnected = asyncio.Event(), asyncio.Event()

    def note(state: ConnectionState) -> None:
        if not state.connected:
            lost.set()
        elif lost.is_set():
            reconnected.set()

    async with await connect(config, "tests", timeout_seconds=10, on_change=note) as connection:
        await ensure_streams(connection.js, config)
        first = await connection.acked.publish(SUBJECT, b"x", {})
        await own_nats.stop()
        await own_nats.start()
        await reconnected.wait()
        assert await asyncio.wait_for(connection.acked.publish(SUBJECT, b"x", {}), 20) == first + 1


USERS = """authorization { users = [ { user: worker, password: secret, permissions: {
    publish: ["echo"], subscribe: [%s] } } ] }"""


@pytest.mark.parametrize(("may_subscribe", "fix"), [("_INBOX.>", "credentials"), ("nothing", "nats_inbox_prefix")])
async def test_what_may_not_be_published_or_not_be_answered_is_told_at_once(
    tmp_path: Path, may_subscribe: str, fix: str
) -> None:
    async with EmbeddedNats(tmp_path / "nats", extra_config=USERS % f'"{may_subscribe}"') as server:
        config = BrokerConfig(
            nats_url=server.url, nats_user="worker", nats_password="secret", nats_timeout_seconds=LONG_SECONDS
        )
        async with await connect(config, "tests") as connection, asyncio.timeout(20):
            for _ in range(2):
                with pytest.raises(PermissionViolation, match=fix):
                    await connection.acked.publish(SUBJECT, b"x", {})
