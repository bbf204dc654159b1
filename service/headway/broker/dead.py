"""Jobs that failed for good, kept for people: the client's own payload, and why it is here, in headers.

Whether one is to be tried again is a person's decision; then its payload is published as it stands, but for a new id
(`requeued`): the old one's log has its end.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from nats.aio.msg import Msg

from headway.broker.connection import Connection
from headway.broker.errors import translated
from headway.broker.job_publish import Publication, headers_size, publication
from headway.broker.replay import read_page
from headway.broker.streams import DEAD, dead_subject
from headway.core.errors import JobRejected, RejectCode
from headway.core.job import JobKey

REASON_HEADER = "Headway-Reason"
MODEL_HEADER = "Headway-Model"
ATTEMPTS_HEADER = "Headway-Attempts"
SEQUENCE_HEADER = "Headway-Stream-Sequence"
MAX_REASON_CHARACTERS = 512
MAX_KEPT_ID_CHARACTERS = 100
"""Of the old id in a new one, which must not be longer than ids may be."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead job."""

    key: JobKey
    """With an id that cannot be used, or none: ``j<stream sequence>``."""
    model: str
    reason: str
    """One line, for people; begins with a code where there is one."""
    payload: bytes
    stream_sequence: int
    """The job's own, in ``HEADWAY_JOBS``."""
    num_attempts: int = 0

    @property
    def headers(self) -> dict[str, str]:
        return {
            REASON_HEADER: " ".join(self.reason.split())[:MAX_REASON_CHARACTERS] or "unknown",
            MODEL_HEADER: self.model,
            ATTEMPTS_HEADER: str(self.num_attempts),
            SEQUENCE_HEADER: str(self.stream_sequence),
            # One entry for each job of the stream, however often a new leader finds it dead.
            "Nats-Msg-Id": f"dead-{self.stream_sequence}-{self.key.tenant}-{self.key.id}",
        }


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A dead job as the stream has it."""

    sequence: int
    """Its stream sequence in ``HEADWAY_DEAD``."""
    died_at: float
    """The broker's timestamp, seconds since the epoch."""
    letter: DeadLetter


class DeadLetters:
    """The stream ``HEADWAY_DEAD``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, letter: DeadLetter) -> None:
        """Store it; harmless twice within the broker's duplicate window. Raises `BrokerUnavailable`, `BrokerRefused`.

        A payload may be as large as a message can be, and its headers are ours: what does not fit is cut off.
        """
        headers = letter.headers
        payload = letter.payload[: self._connection.max_payload - headers_size(headers)]
        with translated(f"store dead job {letter.key.tenant}/{letter.key.id}"):
            await self._connection.js.publish(dead_subject(letter.key), payload, headers=headers)

    async def read(
        self, tenant: str | None = None, from_sequence: int = 1, max_letters: int = 100
    ) -> list[StoredDeadLetter]:
        """The oldest ones from ``from_sequence`` on, of one tenant or of all."""
        subject = f"headway.dead.{tenant or '*'}.*"
        messages = await read_page(self._connection, DEAD, subject, from_sequence, max_letters)
        return [_letter(message) for message in messages]

    async def show(self, key: JobKey) -> list[StoredDeadLetter]:
        """All dead jobs of that identity: a job that ran, and those that were in conflict with it."""
        messages = await read_page(self._connection, DEAD, dead_subject(key), 1)
        return [_letter(message) for message in messages]


@dataclass(frozen=True, slots=True)
class Requeued:
    """A dead job as a new one."""

    key: JobKey
    publication: Publication


def requeued(letter: DeadLetter) -> Requeued:
    """The same job under an id that begins with the old one. Raises `JobRejected` if the payload is no job at all."""
    try:
        fields = json.loads(letter.payload)
    except ValueError as exc:
        raise JobRejected(RejectCode.INVALID_JSON, None, f"the payload of {letter.key.id} cannot be read") from exc
    if not isinstance(fields, dict):
        raise JobRejected(RejectCode.INVALID_JSON, None, f"the payload of {letter.key.id} is no object")
    key = JobKey(letter.key.tenant, f"{letter.key.id[:MAX_KEPT_ID_CHARACTERS]}-{secrets.token_hex(4)}")
    payload = json.dumps({**fields, "id": key.id}).encode()
    return Requeued(key, publication(letter.model, key.tenant, payload))


def _letter(message: Msg) -> StoredDeadLetter:
    headers = message.headers or {}
    tenant, job_id = message.subject.split(".")[2:]
    letter = DeadLetter(
        key=JobKey(tenant, job_id),
        model=headers.get(MODEL_HEADER, ""),
        reason=headers.get(REASON_HEADER, "unknown"),
        payload=message.data,
        stream_sequence=int(headers.get(SEQUENCE_HEADER, 0)),
        num_attempts=int(headers.get(ATTEMPTS_HEADER, 0)),
    )
    return StoredDeadLetter(message.metadata.sequence.stream, message.metadata.timestamp.timestamp(), letter)
