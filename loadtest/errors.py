"""What a load test cannot do."""

from __future__ import annotations

from headway.core.errors import HeadwayError

INTERRUPTED = "interrupted"


class BenchError(HeadwayError):
    """A system could not be started, or did not do the work."""


def reason(stop: KeyboardInterrupt | HeadwayError) -> str:
    """Why a measurement ended early, for its report."""
    return INTERRUPTED if isinstance(stop, KeyboardInterrupt) else str(stop)
