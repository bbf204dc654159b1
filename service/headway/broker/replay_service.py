"""Reading a log on behalf of those who may not read the stream: a NATS request, answered with a page of records.

    nats request headway.replay.acme.a1 '{"from_sequence": 1}'
        ──▶  {"records": [{"sequence": 17, "record": {"kind": "attempt", …}, …}, …]}

Why not by a consumer of the reader's own: whoever may create a consumer names the subject that it delivers to, and the
broker delivers there with rights of its own. A filter bounds what is read, and nothing bounds where it goes: into
another tenant's jobs, or as a request to the broker itself. Here the subject of the request says whose log is read,
which NATS permissions see, and the answer goes to whoever asked (docs/security.md).

Every queue and worker process answers, so results can be read as long as any of them runs; one of them gets each
request.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from headway.broker.connection import Connection
from headway.broker.errors import BrokerRefused, BrokerUnavailable, translated
from headway.broker.joblog import HASH_HEADER, WRITE_HEADER, StoredRecord
from headway.broker.log_store import stored_record
from headway.broker.replay import read_page
from headway.broker.streams import RESULTS, log_subject, replay_subject
from headway.core.errors import HeadwayError
from headway.core.job import JOB_ID, TOKEN, JobKey

log = logging.getLogger(__name__)

REPLAY_SUBJECTS = "headway.replay.*.*"
GROUP = "headway-replay"
PAGE_RECORDS = 512
MAX_PENDING_REQUESTS = 64
"""Of one process; each holds a page in memory."""
FRAME_BYTES = 256
"""More than one record takes in an answer beside its own bytes."""


class _Request(msgspec.Struct):
    from_sequence: int = 1
    """The first stream sequence that is wanted."""


class _Replayed(msgspec.Struct, omit_defaults=True):
    sequence: int
    record: msgspec.Raw
    write_id: str | None = None
    payload_hash: str | None = None

    @classmethod
    def of(cls, message: Msg) -> _Replayed:
        headers = message.headers or {}
        sequence = message.metadata.sequence.stream
        return cls(sequence, _json(message.data), headers.get(WRITE_HEADER), headers.get(HASH_HEADER))

    def stored(self) -> StoredRecord:
        """Raises `RecordInvalid`."""
        headers = {WRITE_HEADER: self.write_id, HASH_HEADER: self.payload_hash}
        return stored_record(self.sequence, bytes(self.record), {k: v for k, v in headers.items() if v is not None})


class _Page(msgspec.Struct, omit_defaults=True):
    """The wire's form of an answer: records in order, without a gap between them, or why there are none."""

    records: list[_Replayed] = []
    error: str | None = None


class ReplayServer:
    """Answers from `start` to `stop`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._subscription: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        with translated("listen for replays"):
            self._subscription = await self._connection.client.subscribe(REPLAY_SUBJECTS, GROUP, cb=self._on_request)

    async def stop(self) -> None:
        """Requests that are not answered yet never are: their senders ask again."""
        if self._subscription is not None:
            with suppress(nats.errors.Error):
                await self._subscription.unsubscribe()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _on_request(self, message: Msg) -> None:
        if len(self._tasks) >= MAX_PENDING_REQUESTS:
            await self._reply(message, _Page(error="too many requests at once; try again"))
            return
        task = asyncio.create_task(self._answer(message), name=f"replay {message.subject}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        key = JobKey(*message.subject.split(".")[2:])
        try:
            page = await self._page(key, message.data)
        except HeadwayError as exc:
            log.warning("replay of %s/%s: %s", key.tenant, key.id, exc)
            page = _Page(error=str(exc))
        await self._reply(message, page)

    async def _page(self, key: JobKey, data: bytes) -> _Page:
        """A token may be a wildcard, which would find any job's log."""
        if not (TOKEN.fullmatch(key.tenant) and JOB_ID.fullmatch(key.id)):
            return _Page(error="the subject must be headway.replay.<tenant>.<id> of one job")
        try:
            request = msgspec.json.decode(data, type=_Request) if data else _Request()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
            return _Page(error=f"not a request: {exc}")
        first = min(max(request.from_sequence, 1), 2**63 - 1)
        messages = await read_page(self._connection, RESULTS, log_subject(key), first, PAGE_RECORDS)
        return _Page(self._as_many_as_fit(messages))

    def _as_many_as_fit(self, messages: list[Msg]) -> list[_Replayed]:
        """Into one message of NATS; at least one, which is smaller than that."""
        num_bytes_left = self._connection.max_payload - FRAME_BYTES
        records: list[_Replayed] = []
        for message in messages:
            num_bytes_left -= len(message.data) + FRAME_BYTES
            if num_bytes_left < 0 and records:
                break
            records.append(_Replayed.of(message))
        return records

    async def _reply(self, message: Msg, page: _Page) -> None:
        if message.reply:
            with suppress(nats.errors.Error):
                await message.respond(msgspec.json.encode(page))


async def read_log_page(connection: Connection, key: JobKey, from_sequence: int) -> list[StoredRecord]:
    """What the log holds from that stream sequence on, in order and without a gap; may end early: ask again behind it.

    While no process of Headway runs, the stream is read itself, by those who may. Raises `BrokerUnavailable` and
    `RecordInvalid`.
    """
    operation = f"replay {key.tenant}/{key.id}"
    body = msgspec.json.encode(_Request(from_sequence))
    seconds = connection.config.nats_timeout_seconds
    with translated(operation):
        try:
            data = (await connection.client.request(replay_subject(key), body, timeout=seconds)).data
        except nats.errors.NoRespondersError:
            messages = await _read_stream(connection, key, from_sequence)
            return [_Replayed.of(message).stored() for message in messages]
    page = msgspec.json.decode(data, type=_Page)
    if page.error is not None:
        raise BrokerUnavailable(operation, page.error)
    return [replayed.stored() for replayed in page.records]


async def _read_stream(connection: Connection, key: JobKey, from_sequence: int) -> list[Msg]:
    """Without a process of Headway. Whoever may not, waits for one."""
    try:
        return await read_page(connection, RESULTS, log_subject(key), from_sequence)
    except BrokerRefused as exc:
        raise BrokerUnavailable(exc.operation, f"no process of Headway answers, and {exc.description}") from exc


def _json(data: bytes) -> msgspec.Raw:
    """The record as it is; what is no JSON, as a string, which is no record to its reader either."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(data.decode(errors="replace")))
    return msgspec.Raw(data)
