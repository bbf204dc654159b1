"""The public client: submit jobs, follow them, cancel them.

    async with Client.connect("nats://127.0.0.1:4222", tenant="acme") as client:
        async for chunk in client.submit("Once upon a time", max_tokens=64):
            print(chunk.text, end="", flush=True)

One connection carries any number of jobs, one plain subscription each. Errors are `core.errors.HeadwayError`s with
fields (`broker.errors`). A job that was rejected or failed is not one of them: its last chunk says so, and nothing
that came before is lost.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypedDict, Unpack

from headway.broker.config import BrokerConfig
from headway.broker.connection import Connection, ConnectionState
from headway.broker.control import request_cancel, request_status
from headway.broker.job_payload import encode_fields
from headway.broker.job_publish import Publication, publication
from headway.broker.job_stream import JobStream
from headway.broker.log_reader import LogReader
from headway.broker.results import JobResult
from headway.core.errors import JobRejected, RejectCode
from headway.core.job import JOB_ID, RESERVED_ID_MESSAGE, RESERVED_JOB_ID, TOKEN, JobKey
from headway.core.lease_actions import CancelAnswer
from headway.core.status import QueueStatus

CONNECT_SECONDS = 10.0
SUBMIT_SECONDS = 30.0
CANCEL_SECONDS = 30.0
STATUS_SECONDS = 5.0


class JobOptions(TypedDict, total=False):
    """The optional fields of a job, as on the wire (`core.job` gives their meaning); None is the same as absent."""

    max_tokens: int | None
    min_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[str, float] | None
    logprobs: int | None
    stream: bool | None
    priority: int | None
    deadline_seconds: float | None
    expected_tokens: int | None


class Client:
    """A tenant's connection to Headway. Make it with `connect`; for one event loop."""

    def __init__(self, config: BrokerConfig, tenant: str, model: str, connect_timeout_seconds: float | None) -> None:
        self.tenant = _token("tenant", tenant)
        self.model = _model(model)
        self._connection = Connection(config, f"headway client {tenant}", self._on_change)
        self._connect_timeout_seconds = connect_timeout_seconds
        self._readers: weakref.WeakSet[LogReader] = weakref.WeakSet()

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        tenant: str = "default",
        model: str = "default",
        config: BrokerConfig | None = None,
        timeout_seconds: float | None = CONNECT_SECONDS,
    ) -> Self:
        """A client, to be opened by ``async with`` or ``await`` (then `close` it).

        ``url`` takes the place of ``config.nats_url``; credentials, TLS and the like are in ``config``. ``model`` is
        what `submit` asks for by default. Opening raises `BrokerUnavailable` after the timeout; None waits for ever.
        """
        config = config or BrokerConfig()
        return cls(replace(config, nats_url=url) if url else config, tenant, model, timeout_seconds)

    async def open(self) -> Self:
        await self._connection.open(self._connect_timeout_seconds)
        return self

    async def close(self) -> None:
        """Streams that are still read end with `BrokerUnavailable`; their jobs go on."""
        await self._connection.close()
        for reader in list(self._readers):
            reader.look_again()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def submit(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Sequence[Mapping[str, str]] | None = None,
        id: str | None = None,
        model: str | None = None,
        traceparent: str | None = None,
        timeout_seconds: float = SUBMIT_SECONDS,
        **options: Unpack[JobOptions],
    ) -> JobStream:
        """A job of ``prompt`` (text or token ids) or of ``messages``; published when the stream is first used.

        Give an ``id`` of your own to find the job again, or to publish it once even if your program starts anew: the
        same id with the same content is the same job, with another content a `Conflict`. ``traceparent`` (W3C) makes
        the job part of your trace. What the job says is checked by the queue: a fault comes as a last chunk with
        ``finish_reason`` ``rejected``. Raises `JobRejected` for an id or a model that no subject can carry, for an id
        that is reserved (the answer to that would come under another one), and for a value that JSON cannot hold.
        """
        if id is not None and RESERVED_JOB_ID.fullmatch(id):
            raise JobRejected(RejectCode.INVALID_VALUE, "id", RESERVED_ID_MESSAGE)
        key = self._key(uuid.uuid4().hex if id is None else id)
        prompt = list(prompt) if isinstance(prompt, Sequence) and not isinstance(prompt, str) else prompt
        fields = {"id": key.id, "prompt": prompt, "messages": messages, **options}
        job = publication(_model(model or self.model), self.tenant, encode_fields(fields), traceparent)
        return self._stream(key, job, is_new=id is None, timeout_seconds=timeout_seconds)

    def follow(self, job_id: str) -> JobStream:
        """The output of a job that was submitted before, from its beginning; it may have ended or not begun.

        A job that never was looks like one that waits: bound your patience (`result` takes a timeout).
        """
        return self._stream(self._key(job_id), None, is_new=False, timeout_seconds=SUBMIT_SECONDS)

    async def result(self, job_id: str, timeout_seconds: float | None = None) -> JobResult:
        """The whole of a job once it has ended, however often and by however many readers, until its age limit.

        Raises `TimeoutError`, or `LogIncomplete` if the limit was reached meanwhile.
        """
        async with self.follow(job_id) as stream:
            return await stream.result(timeout_seconds)

    async def cancel(self, job_id: str, timeout_seconds: float = CANCEL_SECONDS) -> CancelAnswer:
        """Cancel a job; returns once its end is stored, or says that it had ended or is not known. Harmless twice.

        Raises `BrokerUnavailable` if no queue answered in time, `BrokerRefused` if it could not.
        """
        return await request_cancel(self._connection, self._key(job_id), timeout_seconds)

    async def status(self, timeout_seconds: float = STATUS_SECONDS) -> QueueStatus:
        """Queue and workers as the leader sees them; for operators, not for tenants. Raises `BrokerUnavailable`."""
        return await request_status(self._connection, timeout_seconds)

    def connection_state(self) -> ConnectionState:
        """Whether NATS can be reached now, and why not. Nothing is lost while it cannot: reading goes on afterwards."""
        return self._connection.state

    def _key(self, job_id: str) -> JobKey:
        if JOB_ID.fullmatch(job_id) is None:
            raise JobRejected(RejectCode.INVALID_VALUE, "id", "must match [A-Za-z0-9_-]{1,128}")
        return JobKey(self.tenant, job_id)

    def _stream(self, key: JobKey, job: Publication | None, is_new: bool, timeout_seconds: float) -> JobStream:
        reader = LogReader(self._connection, key)
        self._readers.add(reader)
        return JobStream(self._connection, reader, job, is_new, timeout_seconds)

    def _on_change(self, state: ConnectionState) -> None:
        """Whatever was published while the connection was away was not sent to us."""
        if state.connected:
            for reader in list(self._readers):
                reader.look_again()


def _model(name: str) -> str:
    return _token("model", name, ': give the served name (served_model of the worker, "default" unless it is set)')


def _token(field: str, value: str, fix: str = "") -> str:
    if TOKEN.fullmatch(value) is None:
        raise JobRejected(RejectCode.INVALID_VALUE, field, f"must match [a-z0-9-]{{1,63}}; {value!r} is none{fix}")
    return value
