"""What a trace says about a job: the facts that `tracing.JobTracer` turns into spans."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from headway.core.job import FinishReason, JobKey
from headway.core.records import GrantToken, Usage

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Period:
    """Nanoseconds since the epoch."""

    start: int
    end: int

    @classmethod
    def of_seconds(cls, start: float, end: float) -> Period:
        """From seconds since the epoch; never negative, whatever two clocks say."""
        return cls(round(start * NANOSECONDS), round(max(start, end) * NANOSECONDS))

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / NANOSECONDS


@dataclass(frozen=True, slots=True)
class TracedJob:
    """The job of a trace. Leader and worker both know these facts, so both derive the same ids from them."""

    key: JobKey
    model: str
    stream_sequence: int
    arrival_seconds: float
    """The broker's timestamp. It tells two jobs of the same name apart."""
    traceparent: str | None = None
    """What came with the job: at the leader the client's, if any; at the worker that of the ``submit`` span."""

    @property
    def trace_id(self) -> int:
        """Of a job whose client named no trace."""
        return int.from_bytes(self._digest("trace")[:16]) or 1

    def span_id(self, span: str) -> int:
        """``span`` tells this job's spans apart."""
        return int.from_bytes(self._digest(span)[:8]) or 1

    def _digest(self, what: str) -> bytes:
        identity = f"{self.stream_sequence} {self.arrival_seconds:.6f} {self.key.tenant} {self.key.id} {what}"
        return hashlib.sha256(identity.encode()).digest()


@dataclass(frozen=True, slots=True)
class TracedAttempt:
    """One attempt on a worker, once it is over."""

    number: int
    """1 for the first; later ones are linked to the one before."""
    grant: GrantToken
    worker: str
    prefill: Period | None = None
    """From the grant to the first token; None if it never started."""
    decode: Period | None = None
    """From the first token to the last; None if it got no token."""
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason | None = None
    """None: the job goes on in another attempt."""
    lost: str | None = None
    """Why it ended without a word of its engine; None: it did not."""
    prompt: str | None = None
    """Exported only if ``log_prompts`` says so, like ``output``."""
    output: str | None = None
