"""Exit statuses of the command line, and of the programs of `loadtest`."""

from __future__ import annotations

from headway.core.errors import HeadwayError, InputError

FAILED = 1
"""What was asked for did not come about."""
USAGE = 2
"""It was asked wrongly: an argument, a flag, a setting, or a file that one of them names."""
INTERRUPTED = 130
"""By Ctrl-C or SIGTERM, as shells have it."""


def status_of(error: HeadwayError) -> int:
    """Of a command that ends with this error."""
    return USAGE if isinstance(error, InputError) else FAILED
