"""What can go wrong between Headway and NATS, as one tree under `core.errors`.

    BrokerError
    ├── BrokerUnavailable      no connection, no answer in time, no JetStream, no stream: trying again may help
    │   └── NoLeader           NATS is there, but no queue process listens
    ├── BrokerRefused          the server answered with an error: operation, code, err_code, description
    │   └── MessageMissing     there is no message with that sequence (any more)
    ├── StreamMissing          a stream is absent and may not be created
    ├── StreamMismatch         a stream exists with other settings than Headway relies on
    ├── Deposed                another leader took the queue over
    ├── Fenced                 a newer attempt writes this job's log
    │   ├── LogEnded           its ``end`` is stored
    │   └── LogConflict        it belongs to another payload under the same identity
    ├── LogIncomplete          the log has lost records: to its age limit, or with its stream
    ├── Conflict               another job has this identity: the results are not ours
    ├── TooLarge               a payload is larger than the broker takes
    ├── Busy                   the queue is full: too many jobs or bytes wait (of all, or of this tenant)
    ├── RecordInvalid          a record of a log that cannot be read
    │   └── UnknownKind        a record of a kind that this version does not know
    └── EmbeddedNatsFailed     the nats-server that we start ourselves did not start
        └── FolderInUse        another one keeps its streams in the same folder
    JobRejected
    └── PayloadRejected        a payload that is no job, with the identity to answer under

`translated` turns the errors of nats-py into these at the boundary, so that nothing outside this package imports
nats-py to catch something.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats.errors
import nats.js.errors

from headway.broker.permissions import PermissionViolation
from headway.core.errors import BrokerError, JobRejected, RejectCode
from headway.core.job import JobKey
from headway.core.records import End

WRONG_LAST_SEQUENCE = 10071
"""JetStream: the subject's last sequence is not the expected one."""
WRITE_IN_FLIGHT = 10164
"""JetStream: another write to the subject is in flight (replicated streams); try again."""
NO_MESSAGE_FOUND = 10037
STREAM_NOT_FOUND = 10059
"""JetStream: the stream was deleted, or never was. Somebody may create it (`streams.ensure_streams`)."""
INVALID_CONFIG = 10052
"""JetStream: a stream cannot be as asked for; comes as a server error (500), but will never work."""
CLIENT_CLOSED = "the client is closed"
"""Why nothing can be had of a connection that has ended for good."""


class BrokerUnavailable(BrokerError):
    """No connection, no answer in time, or JetStream or the stream is not there: trying again may help."""

    def __init__(self, operation: str, reason: str, err_code: int | None = None) -> None:
        super().__init__(f"{operation}: {reason}")
        self.operation = operation
        self.reason = reason
        self.err_code = err_code


class NoLeader(BrokerUnavailable):
    """NATS is there, but no queue process listens."""


class BrokerRefused(BrokerError):
    """NATS or Headway's queue refused it, for want of permission for instance; trying the same again will not help.

    The codes are JetStream's, None where the refusal is not.
    """

    def __init__(self, operation: str, code: int | None, err_code: int | None, description: str) -> None:
        codes = "" if code is None else f" (code {code}, err_code {err_code})"
        super().__init__(f"{operation}: {description}{codes}")
        self.operation = operation
        self.code = code
        self.err_code = err_code
        self.description = description


class MessageMissing(BrokerRefused):
    """There is no message with that sequence or subject (any more)."""


class StreamMissing(BrokerError):
    """A stream is absent and may not be created."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} does not exist: create it, or set create_streams")
        self.stream = stream


class StreamMismatch(BrokerError):
    """A stream exists with other settings than Headway relies on."""

    def __init__(self, stream: str, field: str, expected: object, found: object) -> None:
        super().__init__(f"stream {stream}: {field} must be {expected!r}, but is {found!r}")
        self.stream = stream
        self.field = field
        self.expected = expected
        self.found = found


class Deposed(BrokerError):
    """Another leader took the queue over: this one's consumer is gone. Step down."""

    def __init__(self, epoch: int, reason: str) -> None:
        super().__init__(f"another queue process took over from this one (epoch {epoch}): {reason}")
        self.epoch = epoch
        self.reason = reason


class Fenced(BrokerError):
    """A newer attempt writes this job's log; drop the job."""

    def __init__(self, key: JobKey, reason: str) -> None:
        super().__init__(f"job {key.tenant}/{key.id}: {reason}")
        self.key = key
        self.reason = reason


class LogEnded(Fenced):
    """The job's ``end`` is stored, so nothing can follow."""

    def __init__(self, key: JobKey, end: End) -> None:
        super().__init__(key, f"has ended ({end.finish_reason})")
        self.end = end


class LogConflict(Fenced):
    """The log belongs to another payload with the same identity: the first job keeps it."""

    def __init__(self, key: JobKey, payload_hash: str, log_hash: str) -> None:
        super().__init__(key, f"another job has this id (payload {log_hash[:12]}…, not {payload_hash[:12]}…)")
        self.payload_hash = payload_hash
        self.log_hash = log_hash


class LogIncomplete(BrokerError):
    """The log has lost records to its age limit, or with a stream that was deleted, so the output has a gap."""

    def __init__(self, key: JobKey) -> None:
        super().__init__(f"the log of {key.tenant}/{key.id} has lost records to its age limit, or with its stream")
        self.key = key


class Conflict(BrokerError):
    """Another payload was published under this identity before: the results are that job's, not ours."""

    def __init__(self, key: JobKey) -> None:
        super().__init__(f"another job of tenant {key.tenant} has the id {key.id}: choose another one")
        self.key = key


class TooLarge(BrokerError):
    """A payload is larger than the broker takes; both sizes in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the job has {size} bytes; the broker takes at most {limit}")
        self.size = size
        self.limit = limit


class Busy(BrokerError):
    """The queue is full: too many jobs or bytes wait, of all or of this tenant. Nothing will run; try again later."""

    def __init__(self, reason: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        """A hint; back off further if it is refused again."""


class RecordInvalid(BrokerError):
    """A record of a log that cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnknownKind(RecordInvalid):
    """A record of a kind that this version does not know; a reader may skip it."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"unknown kind of record {kind!r}")
        self.kind = kind


class EmbeddedNatsFailed(BrokerError):
    """The nats-server that we start ourselves did not start."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(f"nats-server: {reason}" + (f"\n{log}" if log else ""))
        self.reason = reason
        self.log = log


class FolderInUse(EmbeddedNatsFailed):
    """Another nats-server keeps its streams in the folder; two would ruin them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"another server uses {folder}")
        self.folder = folder


class PayloadRejected(JobRejected):
    """A payload that is no job. ``key`` is the identity to answer under, None where it cannot be known."""

    def __init__(
        self, code: RejectCode, field: str | None, message: str, key: JobKey | None = None, payload_hash: str = ""
    ) -> None:
        super().__init__(code, field, message)
        self.key = key
        self.payload_hash = payload_hash


@contextmanager
def translated(operation: str) -> Iterator[None]:
    """Raise what nats-py raises inside as a `BrokerError` that names the operation."""
    try:
        yield
    except (nats.js.errors.ServiceUnavailableError, nats.js.errors.ServerError) as exc:
        if exc.err_code == INVALID_CONFIG:
            raise _refused(operation, exc) from exc
        raise BrokerUnavailable(operation, exc.description or "JetStream is not available", exc.err_code) from exc
    except nats.js.errors.APIError as exc:
        if exc.err_code == STREAM_NOT_FOUND:
            raise BrokerUnavailable(operation, "the stream does not exist", exc.err_code) from exc
        raise _refused(operation, exc) from exc
    except PermissionViolation as exc:
        raise BrokerRefused(operation, None, None, exc.description) from exc
    except nats.errors.ConnectionClosedError as exc:
        raise BrokerUnavailable(operation, CLIENT_CLOSED) from exc
    except (nats.errors.Error, OSError) as exc:
        raise BrokerUnavailable(operation, str(exc) or type(exc).__name__) from exc


def _refused(operation: str, exc: nats.js.errors.APIError) -> BrokerRefused:
    code = getattr(exc, "code", None)
    err_code = getattr(exc, "err_code", None)
    kind = MessageMissing if err_code == NO_MESSAGE_FOUND else BrokerRefused
    return kind(operation, code, err_code, getattr(exc, "description", None) or str(exc))
