"""The logs of jobs in the stream: read the tail, read all, append one record.

Every record is appended with the expected last sequence of its subject, so a log has one writer at a time
(docs/wire.md). A refusal does not yet mean that somebody else wrote: a try whose acknowledgement was lost is
refused when it is repeated. `append` therefore reads the tail and tells its own record from another's, by a random
id in the record's headers.

A stream that is full, deleted or without space refuses too, and is tried again like a server that is away, so what is
not stored, or not read, yet is held meanwhile; `Troubles` say why.

Tails are read from the leader of the stream (the plain get of the JetStream API, never the direct get that
followers answer), so that a writer never takes up a job on a stale log. Everything is tried again until it works:
the caller bounds it, if it wants to, with a timeout of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import nats.errors
from nats.js.errors import APIError, NoStreamResponseError

from headway.broker.backoff import Backoff
from headway.broker.codec import decode_record, encode_record
from headway.broker.connection import Connection
from headway.broker.errors import (
    WRITE_IN_FLIGHT,
    WRONG_LAST_SEQUENCE,
    BrokerRefused,
    BrokerUnavailable,
    MessageMissing,
    RecordInvalid,
    TooLarge,
    UnknownKind,
    translated,
)
from headway.broker.joblog import HASH_HEADER, WRITE_HEADER, LogState, StoredRecord
from headway.broker.replay import read_page
from headway.broker.streams import RESULTS, log_subject
from headway.broker.troubles import Troubles
from headway.core.job import JobKey
from headway.core.records import Record

log = logging.getLogger(__name__)

EXPECTED_HEADER = "Nats-Expected-Last-Subject-Sequence"
HEADER_BYTES = 1024
"""More than the headers of a record take; the server counts them into its limit of a message."""


@dataclass(frozen=True, slots=True)
class Append:
    """One record on its way into a log, the same over all tries."""

    key: JobKey
    record: Record
    expected_sequence: int
    """Stream sequence of the record that it follows; 0: it is the log's first."""
    write_id: str
    """Random."""
    payload_hash: str | None = None
    """For a log that may have no ``attempt``: see `HASH_HEADER`."""

    @property
    def headers(self) -> dict[str, str]:
        headers = {EXPECTED_HEADER: str(self.expected_sequence), WRITE_HEADER: self.write_id}
        if self.payload_hash:
            headers[HASH_HEADER] = self.payload_hash
        return headers


@dataclass(frozen=True, slots=True)
class Stored:
    """The record stands in the log."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The record is not stored: the log does not end where it should."""

    tail: StoredRecord | None
    """What it ends with; None: it is empty (it has reached its age limit)."""


class JobLogs:
    """All logs, over one connection. ``troubles`` hears why records cannot be stored now."""

    def __init__(self, connection: Connection, troubles: Troubles | None = None) -> None:
        self._connection = connection
        self._troubles = troubles or Troubles()

    @property
    def max_record_bytes(self) -> int:
        """Bytes of one encoded record at most. More would make the server close the connection."""
        return self._connection.max_payload - HEADER_BYTES

    async def tail(self, key: JobKey) -> StoredRecord | None:
        """The log's newest record, as the leader of the stream knows it; None: the log is empty."""
        backoff, who = Backoff(), object()
        try:
            while True:
                try:
                    return await self._get_tail(key)
                except (BrokerUnavailable, BrokerRefused) as exc:
                    self._go_on_after(exc, who)
                await backoff.pause()
        finally:
            self._troubles.remove(who)

    async def read(self, key: JobKey) -> LogState:
        """Everything that the log says. One round trip if it is empty, as it is for most jobs at their grant.

        Raises `LogIncomplete`.
        """
        state = LogState(key)
        backoff = Backoff()
        tail = await self.tail(key)
        while tail is not None and state.last_sequence < tail.sequence:
            if not await self._read_on(state):
                await backoff.pause()
                tail = await self.tail(key)
        return state

    async def append(self, append: Append) -> Stored | Refused:
        """Append the record, or say what stands in its place; never stores it twice.

        Raises `TooLarge`, and `BrokerUnavailable` once the connection is closed for good.
        """
        data = encode_record(append.record)
        if len(data) > self.max_record_bytes:
            raise TooLarge(len(data), self.max_record_bytes)
        try:
            return await self._append(append, data)
        finally:
            self._troubles.remove(append.write_id)

    async def _append(self, append: Append, data: bytes) -> Stored | Refused:
        backoff = Backoff()
        while True:
            if (sequence := await self._try(append, data)) is not None:
                return Stored(sequence)
            tail = await self.tail(append.key)
            if tail is not None and tail.write_id == append.write_id:
                return Stored(tail.sequence)
            if _moved_on(tail, append.expected_sequence):
                return Refused(tail)
            await backoff.pause()

    async def _try(self, append: Append, data: bytes) -> int | None:
        """The sequence of the stored record; None: look at the tail.

        Only a connected client sends: nats-py would buffer the record, and a copy of it per try.
        """
        if not self._connection.client.is_connected:
            return None
        try:
            return await self._connection.acked.publish(log_subject(append.key), data, append.headers)
        except APIError as exc:
            if exc.err_code not in (WRONG_LAST_SEQUENCE, WRITE_IN_FLIGHT):
                self._troubles.add(append.write_id, f"{RESULTS} refuses records: {exc.description or exc}")
        except NoStreamResponseError:
            self._troubles.add(append.write_id, f"no stream takes {log_subject(append.key)}")
        except (nats.errors.Error, OSError) as exc:
            if self._connection.client.is_connected:
                self._troubles.add(append.write_id, f"{RESULTS} does not answer: {exc or type(exc).__name__}")
        return None

    async def _get_tail(self, key: JobKey) -> StoredRecord | None:
        try:
            with translated(f"read the log of {key.tenant}/{key.id}"):
                message = await self._connection.js.get_last_msg(RESULTS, log_subject(key))
        except MessageMissing:
            return None
        return _readable_record(message.seq or 0, message.data or b"", message.headers)

    async def _read_on(self, state: LogState) -> bool:
        """Fold the next page into the state. False: there was nothing, or no connection."""
        try:
            messages = await read_page(self._connection, RESULTS, log_subject(state.key), state.last_sequence + 1)
        except (BrokerUnavailable, BrokerRefused) as exc:
            self._go_on_after(exc)  # the tail is asked for next, and says what is wrong
            return False
        for message in messages:
            state.add(_readable_record(message.metadata.sequence.stream, message.data, message.headers))
        return bool(messages)

    def _go_on_after(self, exc: BrokerUnavailable | BrokerRefused, who: object | None = None) -> None:
        """A lost connection comes back; one that we closed does not. A refusal (a limit of the account, say) is for an
        operator to end, and no reason to drop what runs."""
        if self._connection.client.is_closed:
            raise exc
        if who is not None and self._connection.client.is_connected and self._troubles.reason is None:
            self._troubles.add(who, str(exc))
        log.log(logging.WARNING if isinstance(exc, BrokerRefused) else logging.DEBUG, "%s; trying again", exc)


def _moved_on(tail: StoredRecord | None, expected_sequence: int) -> bool:
    """Whether the log does not end as expected. A tail before the expected one is only a leader that catches up."""
    return tail.sequence > expected_sequence if tail else expected_sequence > 0


def stored_record(sequence: int, data: bytes, headers: Mapping[str, str] | None) -> StoredRecord:
    """Raises `RecordInvalid`."""
    headers = headers or {}
    try:
        record = decode_record(data)
    except UnknownKind:
        record = None
    return StoredRecord(sequence, record, headers.get(WRITE_HEADER), headers.get(HASH_HEADER))


def _readable_record(sequence: int, data: bytes, headers: Mapping[str, str] | None) -> StoredRecord:
    """As `stored_record`, but one log that somebody else has spoilt must not stop those who write all the others."""
    try:
        return stored_record(sequence, data, headers)
    except RecordInvalid as exc:
        log.error("record %d of a log is skipped: %s", sequence, exc)
        return StoredRecord(sequence, None)
