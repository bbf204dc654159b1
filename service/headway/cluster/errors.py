"""The Kubernetes API's errors, with the fields that callers branch on.

ClusterError (core/errors.py)
├── ApiRefused        it answered, and not with success: status, reason
│   ├── NotFound      404
│   └── Conflict      409: somebody wrote the object meanwhile, or made it first
├── ApiUnavailable    no answer at all
└── MissingData       a metric that is not known now: an error, never a number
"""

from __future__ import annotations

from headway.core.errors import ClusterError


class ApiRefused(ClusterError):
    """The API answered with an error."""

    def __init__(self, operation: str, status: int, reason: str) -> None:
        super().__init__(f"could not {operation}: the Kubernetes API answered {status} ({reason})")
        self.operation = operation
        self.status = status
        self.reason = reason


class NotFound(ApiRefused):
    pass


class Conflict(ApiRefused):
    pass


class ApiUnavailable(ClusterError):
    """No connection, no answer in time, or an answer that is none."""

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(f"could not {operation}: the Kubernetes API is not reachable: {why}")
        self.operation = operation
        self.why = why


class MissingData(ClusterError):
    """What an autoscaler asks for is not known. Told as an error, so that it keeps the workers that there are."""


def refused(operation: str, status: int, reason: str) -> ApiRefused:
    """The error of this status."""
    return {404: NotFound, 409: Conflict}.get(status, ApiRefused)(operation, status, reason)
