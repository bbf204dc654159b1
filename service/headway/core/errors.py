"""Every error that Headway raises on purpose, as one tree.

    HeadwayError
    ├── InputError         what somebody wrote cannot hold, whatever else is there
    │   ├── JobRejected    a job that can never run as it was sent: code, field, message
    │   └── SettingError   a setting that cannot hold: setting, value, fix
    ├── BrokerError        NATS refused or is not what it should be (broker/errors.py refines it)
    ├── LeaseError         the lease stream was refused or lost
    ├── ClusterError       the Kubernetes API, or what is served to it (cluster/errors.py refines it)
    └── EngineError        the engine child failed
        └── EngineBroken   in a way that it must not try again

Errors carry fields, so that callers branch on data and never on text. Library errors are translated at the
boundary of the package that imports the library, with ``raise ... from exc``.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class RejectCode(StrEnum):
    """Why a job was rejected; the ``error.code`` of its ``end`` record (docs/wire.md)."""

    INVALID_JSON = "invalid_json"
    UNKNOWN_FIELD = "unknown_field"
    INVALID_VALUE = "invalid_value"
    TOO_LONG = "too_long"
    UNKNOWN_MODEL = "unknown_model"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    BUSY = "busy"
    """Not the job's fault: its tenant has too many bytes in the queue. Under another id it may be taken later."""


class HeadwayError(Exception):
    """The root: catching it catches everything that Headway raises on purpose."""


class InputError(HeadwayError):
    """What somebody wrote cannot hold: an argument, a setting, a job, or a file that one of them names.

    It fails again until it is written in another way, so the command line ends with another status (2) than for what
    was asked rightly and did not come about (1). What depends on others, such as a broker that is away or refuses, is
    none.
    """


class JobRejected(InputError):
    """A job that can never run as it was sent."""

    def __init__(self, code: RejectCode, field: str | None, message: str) -> None:
        super().__init__(f"{code}: {field}: {message}" if field else f"{code}: {message}")
        self.code = code
        self.field = field
        self.message = message


def plain(value: object) -> object:
    """An enum's value, which is what people write; anything else as it is."""
    return value.value if isinstance(value, Enum) else value


class SettingError(InputError):
    """A setting that cannot hold, with the way out."""

    def __init__(self, setting: str, value: object, fix: str) -> None:
        super().__init__(f"{setting} = {plain(value)!r}: {fix}")
        self.setting = setting
        self.value = value
        self.fix = fix


class BrokerError(HeadwayError):
    """NATS is unreachable, refused an operation, or is not set up as it should be."""


class LeaseError(HeadwayError):
    """The lease stream was refused or lost."""


class ClusterError(HeadwayError):
    """The Kubernetes API is unreachable or refused an operation, or something asked of us is not known."""


class EngineError(HeadwayError):
    """The engine child could not start, or died."""


class EngineBroken(EngineError):
    """A step cannot be tried again in the same processes: they no longer agree on what comes next."""
