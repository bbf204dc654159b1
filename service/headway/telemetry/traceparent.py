"""W3C Trace Context: the ``traceparent`` header, in and out.

A header that does not hold is ignored, as the specification asks: a broken trace must not break a job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
FORBIDDEN_VERSION = "ff"
SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceParent:
    """Names one span of one trace."""

    trace_id: int
    """128 bits, not 0."""
    span_id: int
    """64 bits, not 0."""
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{SAMPLED if self.is_sampled else 0:02x}"


def parse_traceparent(text: str | None) -> TraceParent | None:
    """None for what is no traceparent; versions above 00 may carry more behind what we read."""
    match = PATTERN.fullmatch(text.strip().lower()) if text else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == FORBIDDEN_VERSION or (version == "00" and rest):
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & SAMPLED))
    return parent if parent.trace_id and parent.span_id else None
