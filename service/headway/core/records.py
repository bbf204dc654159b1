"""The log of a job: what its records say (docs/wire.md).

A log is one ``attempt`` per try, ``tokens`` as they come, ``released`` when a worker hands the job back, and
exactly one ``end`` with nothing behind it. `broker.codec` turns these into JSON and back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.job import FinishReason


class GrantToken(NamedTuple):
    """Orders the attempts of a job: the epoch of the leader that granted it, then that leader's grant number."""

    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities of one output token and of the most likely ones in its place."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """(token id, log-probability), most likely first."""


@dataclass(frozen=True, slots=True)
class Attempt:
    number: int
    """1 for the first."""
    grant: GrantToken
    worker: str
    payload_hash: str


@dataclass(frozen=True, slots=True)
class Tokens:
    seq: int
    """0 for the job's first ``tokens`` record, over all attempts."""
    token_start: int
    """Index of ``token_ids[0]`` in the job's output."""
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...] | None = None


@dataclass(frozen=True, slots=True)
class Released:
    reason: str
    grant: GrantToken


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    code: str
    field: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose keys and values were found in shared pages."""
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of the last attempt, in seconds; None where the job never got there."""

    queue_seconds: float | None = None
    """From the broker's timestamp of the job to the grant."""
    prefill_seconds: float | None = None
    """From the grant to the first token."""
    decode_seconds: float | None = None
    """From the first token to the last."""


@dataclass(frozen=True, slots=True)
class End:
    finish_reason: FinishReason
    error: ErrorInfo | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)


Record = Attempt | Tokens | Released | End
