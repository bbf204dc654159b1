"""The lock of the queue's leader outside Kubernetes: the key ``leader`` of the bucket ``HEADWAY_STATE``.

    leader   {"version": 1, "holder": "queue-0-5f0c…", "address": "10.0.0.7:4280", "lease_seconds": 3.0}

It is read from the leader of the stream and written with the expected revision. A plain subscription to the key's
subject tells of writes at once (also of those that the stream refuses, so it is only a reason to look).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.errors import APIError
from nats.js.kv import KV_DEL, KV_OP, KV_PURGE

from headway.broker.connection import Connection
from headway.broker.errors import WRITE_IN_FLIGHT, WRONG_LAST_SEQUENCE, BrokerUnavailable, MessageMissing, translated
from headway.broker.state import VERSION
from headway.broker.streams import STATE, STATE_BUCKET
from headway.core.election import LockRecord, StoredLock

log = logging.getLogger(__name__)

SUBJECT = f"$KV.{STATE_BUCKET}.leader"
UNREADABLE = LockRecord("somebody whose record this version cannot read", None, 15.0)
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class _Leader(msgspec.Struct, kw_only=True):
    """The value of the key."""

    version: int = VERSION
    holder: str
    address: str | None
    lease_seconds: float


class KeyValueLock:
    """A `core.election.LeaderLock`. Its version is the key's revision. `ensure_streams` makes the bucket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._subscription: Subscription | None = None
        self._changed = asyncio.Event()

    async def read(self) -> StoredLock | None:
        self._changed.clear()
        try:
            with translated("read the leader's lock"):
                message = await self._connection.js.get_last_msg(STATE, SUBJECT)
        except MessageMissing:
            return None
        is_deleted = (message.headers or {}).get(KV_OP) in (KV_DEL, KV_PURGE)
        record = LockRecord("", None, 0.0) if is_deleted else _decoded(message.data or b"")
        return StoredLock(record, str(message.seq))

    async def write(self, record: LockRecord, version: str | None) -> str | None:
        if not self._connection.client.is_connected:
            raise BrokerUnavailable("write the leader's lock", self._connection.state.reason)
        value = _Leader(holder=record.holder, address=record.address, lease_seconds=record.lease_seconds)
        headers = {EXPECTED: version or "0"}
        with translated("write the leader's lock"):
            try:
                ack = await self._connection.js.publish(SUBJECT, msgspec.json.encode(value), headers=headers)
            except APIError as exc:
                if exc.err_code in (WRONG_LAST_SEQUENCE, WRITE_IN_FLIGHT):
                    return None
                raise
        return str(ack.seq)

    async def wait_for_change(self, timeout_seconds: float) -> None:
        if self._subscription is None:
            with translated("watch the leader's lock"):
                self._subscription = await self._connection.client.subscribe(SUBJECT, cb=self._on_write)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._changed.wait()

    async def _on_write(self, _: Msg) -> None:
        self._changed.set()


def _decoded(value: bytes) -> LockRecord:
    """What cannot be read is held by somebody, who has to be silent for long before it counts for nothing."""
    try:
        leader = msgspec.json.decode(value, type=_Leader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        log.warning("%s: the leader's lock cannot be read: %s", STATE_BUCKET, exc)
        return UNREADABLE
    return LockRecord(leader.holder, leader.address, leader.lease_seconds) if leader.version == VERSION else UNREADABLE
