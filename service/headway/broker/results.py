"""What a client gets of a job: chunks as they come, or one result."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.job import FinishReason
from headway.core.records import ErrorInfo, Timings, TokenLogprobs, Usage


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a job's output. Chunks never overlap, never change and leave nothing out, whatever died meanwhile.

    The last one has a ``finish_reason`` and no output.
    """

    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each of ``token_ids``, if asked for."""
    finish_reason: FinishReason | None = None
    error: ErrorInfo | None = None
    """In the last chunk of a job that was rejected or failed."""
    usage: Usage | None = None
    timings: Timings | None = None

    @property
    def is_last(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class JobResult:
    """The whole of a job that has ended. A job that was rejected or failed is a result too: look at ``error``."""

    id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None
    finish_reason: FinishReason
    error: ErrorInfo | None
    usage: Usage
    timings: Timings
    num_attempts: int
    """Workers that took it up, one after the other."""

    @property
    def is_complete(self) -> bool:
        """Whether the model came to an end by itself: by a stop or by the length that was asked for."""
        return self.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(slots=True)
class Transcript:
    """Joins chunks into a result."""

    id: str
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_attempts: int = 0
    last: Chunk | None = None

    def add(self, chunk: Chunk) -> None:
        self.token_ids.extend(chunk.token_ids)
        self.texts.append(chunk.text)
        self.logprobs.extend(chunk.logprobs or ())
        if chunk.is_last:
            self.last = chunk

    def result(self) -> JobResult:
        """Of a job whose last chunk was added."""
        assert self.last is not None
        assert self.last.finish_reason is not None
        return JobResult(
            id=self.id,
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs) or None,
            finish_reason=self.last.finish_reason,
            error=self.last.error,
            usage=self.last.usage or Usage(),
            timings=self.last.timings or Timings(),
            num_attempts=self.num_attempts,
        )
