"""What is particular to the lock in the state bucket; how a lock behaves is in tests/roles/test_election.py."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from nats.js.kv import KeyValue

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, connect
from headway.broker.election import SUBJECT, KeyValueLock
from headway.broker.embedded import EmbeddedNats
from headway.broker.errors import BrokerError, BrokerUnavailable
from headway.broker.streams import STATE_BUCKET, ensure_streams
from headway.core.election import LockRecord

Eventually = Callable[..., Awaitable[None]]
RECORD = LockRecord("queue-0-1f", "10.0.0.7:4280", 3.0)


@pytest.fixture
async def bucket(connection: Connection) -> KeyValue:
    return await connection.js.key_value(STATE_BUCKET)


async def test_the_key_is_json_that_a_person_can_read(connection: Connection, bucket: KeyValue) -> None:
    revision = await KeyValueLock(connection).write(RECORD, None)
    entry = await bucket.get("leader")
    assert (str(entry.revision), json.loads(entry.value or b"")) == (
        revision,
        {"version": 1, "holder": "queue-0-1f", "address": "10.0.0.7:4280", "lease_seconds": 3.0},
    )


@pytest.mark.parametrize(
    "value", [b"nonsense", b"\xff", b"{}", b'{"version":2,"holder":"","address":null,"lease_seconds":1}']
)
async def test_a_record_that_cannot_be_read_is_held_by_somebody(
    connection: Connection, bucket: KeyValue, value: bytes
) -> None:
    revision = await bucket.put("leader", value)
    found = await KeyValueLock(connection).read()
    assert found is not None
    assert not found.record.is_free
    assert found.record.address is None
    assert found.version == str(revision)


async def test_a_key_that_a_person_has_deleted_is_free_and_can_be_taken(
    connection: Connection, bucket: KeyValue
) -> None:
    lock = KeyValueLock(connection)
    await lock.write(RECORD, None)
    await bucket.delete("leader")
    found = await lock.read()
    assert found is not None
    assert found.record.is_free
    assert await lock.write(RECORD, found.version) is not None


async def test_without_the_bucket_it_says_so(fresh_nats: EmbeddedNats) -> None:
    async with await connect(BrokerConfig(nats_url=fresh_nats.url, nats_timeout_seconds=1.0), "tests") as connection:
        lock = KeyValueLock(connection)
        with pytest.raises(BrokerError):
            await lock.read()
        with pytest.raises(BrokerError):
            await lock.write(RECORD, None)


async def test_nothing_is_written_later_that_could_not_be_written_now(
    own_nats: EmbeddedNats, eventually: Eventually
) -> None:
    """A write that waits in a buffer would renew, after the reconnect, what nobody holds any more."""
    config = BrokerConfig(nats_url=own_nats.url, nats_timeout_seconds=1.0, nats_reconnect_seconds=0.05)
    async with await connect(config, "tests", timeout_seconds=10) as connection:
        await ensure_streams(connection.js, config)
        lock = KeyValueLock(connection)
        version = await lock.write(RECORD, None)
        await own_nats.stop(kill=True)
        await eventually(lambda: not connection.state.connected)
        with pytest.raises(BrokerUnavailable):
            await lock.write(RECORD, version)
        assert SUBJECT.encode() not in b"".join(connection.client._pending)
