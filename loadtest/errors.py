"""What a load test cannot do."""

from __future__ import annotations

from headway.core.errors import HeadwayError


class BenchError(HeadwayError):
    """A system could not be started, or did not do the work."""
