"""Pages of a log by request, between two connections to a real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.errors import RecordInvalid
from headway.broker.joblog import HASH_HEADER, WRITE_HEADER
from headway.broker.replay_service import ReplayServer, read_log_page
from headway.core.job import JobKey
from headway.core.records import Released, Tokens

KEY = JobKey("acme", "a1")
SUBJECT = "headway.log.acme.a1"


@pytest.fixture
async def client(broker_config: BrokerConfig) -> AsyncIterator[Connection]:
    async with await connect(broker_config, "client", timeout_seconds=10) as client:
        yield client


@pytest.fixture
async def server(connection: Connection) -> AsyncIterator[ReplayServer]:
    server = ReplayServer(connection)
    await server.start()
    await connection.client.flush()
    yield server
    await server.stop()


def tokens(seq: int, text: str = "x") -> bytes:
    record = {"kind": "tokens", "seq": seq, "token_start": seq, "token_ids": [seq], "text": text}
    return json.dumps(record).encode()


async def store(connection: Connection, *records: bytes, subject: str = SUBJECT) -> None:
    for record in records:
        headers = {WRITE_HEADER: "mine", HASH_HEADER: "hash"}
        await connection.js.publish(subject, record, headers=headers)


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_page_is_the_same_by_request_and_from_the_stream(
    connection: Connection, client: Connection, is_served: bool
) -> None:
    server = ReplayServer(connection)
    if is_served:
        await server.start()
    await store(connection, tokens(0))
    await store(connection, tokens(9), subject="headway.log.acme.a2")
    await store(connection, tokens(1), b'{"kind":"released","reason":"r","grant":[1,2]}', b'{"kind":"later"}')
    page = await read_log_page(client, KEY, 2)
    assert [stored.sequence for stored in page] == [3, 4, 5]
    assert [type(stored.record) for stored in page] == [Tokens, Released, type(None)]
    assert {(stored.write_id, stored.payload_hash) for stored in page} == {("mine", "hash")}
    assert await read_log_page(client, KEY, 6) == []
    await server.stop()


async def test_pages_are_cut_to_what_one_message_holds(
    connection: Connection, client: Connection, server: ReplayServer
) -> None:
    large = "x" * (connection.max_payload // 3)
    await store(connection, *(tokens(seq, large) for seq in range(5)))
    first = await read_log_page(client, KEY, 1)
    rest = await read_log_page(client, KEY, first[-1].sequence + 1)
    assert [stored.sequence for stored in first] == [1, 2]
    assert [stored.sequence for stored in rest] == [3, 4]


async def test_the_largest_record_that_can_be_stored_can_be_read(
    connection: Connection, client: Connection, server: ReplayServer
) -> None:
    await store(connection, tokens(0, "x" * (connection.max_payload - 1024 - len(tokens(0)))))
    (only,) = await read_log_page(client, KEY, 1)
    assert isinstance(only.record, Tokens)


async def test_a_record_that_is_no_json_is_an_error_to_its_reader_alone(
    connection: Connection, client: Connection, server: ReplayServer
) -> None:
    await store(connection, b"\xff nonsense")
    with pytest.raises(RecordInvalid):
        await read_log_page(client, KEY, 1)
    await store(connection, tokens(0), subject="headway.log.acme.a2")
    assert len(await read_log_page(client, JobKey("acme", "a2"), 1)) == 1


@pytest.mark.parametrize("subject", ["headway.replay.acme.a*", "headway.replay.ACME.a1"])
async def test_a_subject_that_is_no_job_gets_nothing(
    connection: Connection, client: Connection, server: ReplayServer, subject: str
) -> None:
    await store(connection, tokens(0))
    answer = json.loads((await client.client.request(subject, b"", timeout=20)).data)
    assert "must be headway.replay.<tenant>.<id>" in answer["error"]


@pytest.mark.parametrize("body", [b"[", b"[" * 100_000, b'{"from_sequence": "x"}', b"\xff", b'{"from_sequence":1e99}'])
async def test_a_request_that_is_none_is_answered_with_the_reason(
    client: Connection, server: ReplayServer, body: bytes
) -> None:
    answer = await client.client.request("headway.replay.acme.a1", body, timeout=20)
    assert "not a request" in json.loads(answer.data)["error"]


async def test_a_person_may_ask_with_an_empty_request(
    connection: Connection, client: Connection, server: ReplayServer
) -> None:
    await store(connection, tokens(0))
    answer = json.loads((await client.client.request("headway.replay.acme.a1", b"", timeout=20)).data)
    assert [record["record"]["kind"] for record in answer["records"]] == ["tokens"]
