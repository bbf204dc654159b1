"""Publishing a job, once: sizes checked before, retries that cannot store it twice, refusals as typed errors."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import nats.errors
from nats.js.errors import APIError, NoStreamResponseError

from headway.broker.backoff import Backoff
from headway.broker.connection import Connection
from headway.broker.errors import CLIENT_CLOSED, BrokerRefused, BrokerUnavailable, Busy, TooLarge
from headway.broker.permissions import PermissionViolation
from headway.broker.streams import JOBS, jobs_subject
from headway.telemetry.traceparent import parse_traceparent

log = logging.getLogger(__name__)

STORE_FULL = 10077
"""JetStream: the stream did not take the message (``maximum messages``, ``… per subject`` or ``… bytes exceeded``)."""
NO_RESOURCES = (10023, 10047)
"""JetStream: out of memory or disk, for now."""
MESSAGE_TOO_LARGE = 10054
HEADER_LINE_BYTES = 4
HEADER_FRAME_BYTES = 12


@dataclass(frozen=True, slots=True)
class Publication:
    """A job on its way to the broker, the same over all tries."""

    model: str
    tenant: str
    payload: bytes
    headers: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes as the server counts them."""
        return len(self.payload) + headers_size(self.headers)


def headers_size(headers: Mapping[str, str]) -> int:
    """Bytes of headers as they are sent: a first line, one line each, an empty one."""
    lines = sum(len(name) + len(value.encode()) + HEADER_LINE_BYTES for name, value in headers.items())
    return lines + HEADER_FRAME_BYTES


def publication(model: str, tenant: str, payload: bytes, traceparent: str | None = None) -> Publication:
    """With a random ``Nats-Msg-Id``: the broker's duplicate window spans all tenants, so it must not be guessable.

    A ``traceparent`` that names no span is left out: nobody could follow it, and a header of any text could end early.
    """
    headers = {"Nats-Msg-Id": secrets.token_hex(16)}
    parent = parse_traceparent(traceparent)
    if parent is not None:
        headers["traceparent"] = str(parent)
    return Publication(model, tenant, payload, headers)


async def publish_job(connection: Connection, job: Publication, timeout_seconds: float) -> int:
    """Returns the job's stream sequence once it is stored.

    Raises `TooLarge` before anything is sent, `Busy`, `BrokerRefused`, and `BrokerUnavailable` after the timeout, or
    once the connection is closed; only after the last may the job be stored all the same.
    """
    if job.size > connection.max_payload:
        raise TooLarge(job.size, connection.max_payload)
    backoff = Backoff()
    reason = "not connected"
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                try:
                    return await _try(connection, job)
                except BrokerUnavailable as exc:
                    if connection.client.is_closed:
                        raise
                    reason = exc.reason
                await backoff.pause()
    except TimeoutError as exc:
        raise BrokerUnavailable("publish a job", f"{reason} (for {timeout_seconds} s)") from exc


async def _try(connection: Connection, job: Publication) -> int:
    subject = jobs_subject(job.model, job.tenant)
    if connection.client.is_closed:
        raise BrokerUnavailable("publish a job", CLIENT_CLOSED)
    if not connection.client.is_connected:
        raise BrokerUnavailable("publish a job", connection.state.reason)
    try:
        return (await connection.js.publish(subject, job.payload, headers=dict(job.headers))).seq
    except NoStreamResponseError as exc:
        raise BrokerUnavailable("publish a job", f"no stream takes {subject}") from exc
    except APIError as exc:
        raise await _refusal(connection, job, exc) from exc
    except PermissionViolation as exc:
        raise BrokerRefused("publish a job", None, None, exc.description) from exc
    except (nats.errors.Error, OSError) as exc:
        raise BrokerUnavailable("publish a job", str(exc) or type(exc).__name__) from exc


async def _refusal(connection: Connection, job: Publication, exc: APIError) -> Exception:
    description = exc.description or str(exc)
    if exc.err_code == STORE_FULL or exc.err_code in NO_RESOURCES:
        return Busy(description)
    if exc.err_code == MESSAGE_TOO_LARGE:
        return TooLarge(job.size, await _max_job_bytes(connection))
    if exc.code == 503:
        return BrokerUnavailable("publish a job", description)
    return BrokerRefused("publish a job", exc.code, exc.err_code, description)


async def _max_job_bytes(connection: Connection) -> int:
    """The stream's own limit; as configured here where we may not ask."""
    try:
        return (await connection.js.stream_info(JOBS)).config.max_msg_size or connection.config.max_job_bytes
    except (nats.errors.Error, OSError):
        return connection.config.max_job_bytes
