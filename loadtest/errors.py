"""What a load test cannot do, and what nobody can ask of one."""

from __future__ import annotations

from headway.core.errors import HeadwayError, InputError

INTERRUPTED = "interrupted"


class BenchError(HeadwayError):
    """A system could not be started, or did not do the work."""


class BenchInputError(InputError):
    """What is asked of a load test cannot be done, or a file that it is given cannot be used."""


def reason(stop: KeyboardInterrupt | HeadwayError) -> str:
    """Why a measurement ended early, for its report."""
    return INTERRUPTED if isinstance(stop, KeyboardInterrupt) else str(stop)
