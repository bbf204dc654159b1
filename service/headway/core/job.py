"""What a client submits: the job, its identity and how to sample.

These are facts as the client stated them; they are validated once, here, so that nothing behind this module has
to ask again. Whatever needs the model (token ids in range, prompt + max_tokens within its length) is checked by
the engine, which knows it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from headway.core.errors import JobRejected, RejectCode

TOKEN = re.compile(r"[a-z0-9-]{1,63}")
"""A tenant or a model, as a token of a NATS subject."""
JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
RESERVED_JOB_ID = re.compile(r"j[0-9]+")
"""Ids of jobs that came without one: ``j<stream sequence>``."""
RESERVED_ID_MESSAGE = "ids like j123 are reserved for jobs that come without one"

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_TOKEN_IDS = 64
MAX_LOGIT_BIAS = 1024
MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1
MAX_PRIORITY = 100
DEFAULT_MAX_TOKENS = 256


class FinishReason(StrEnum):
    """How a job ended: ``finish_reason`` of its ``end`` record."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REJECTED = "rejected"
    ERROR = "error"


class JobKey(NamedTuple):
    """The identity of a job; an id is unique within its tenant only."""

    tenant: str
    id: str


class Message(NamedTuple):
    """One turn of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of one job are chosen and when it stops.

    Raises ``JobRejected`` (``invalid_value``) naming the first field that does not hold.
    """

    max_tokens: int = DEFAULT_MAX_TOKENS
    """Most output tokens, ≥ 1."""
    min_tokens: int = 0
    """Neither EOS nor a stop before this many output tokens; ≤ max_tokens."""
    temperature: float = 1.0
    """How evenly tokens are drawn; 0 is greedy."""
    top_p: float = 1.0
    """Draw from the most likely tokens that have this share of the probability together."""
    top_k: int = 0
    """Draw from so many most likely tokens; 0 switches it off."""
    min_p: float = 0.0
    """Leave out tokens less likely than this share of the most likely one; 0 switches it off."""
    seed: int | None = None
    """Repeats an answer: the same seed draws the same tokens. Default: derived from the job's identity."""
    stop: tuple[str, ...] = ()
    """Strings that end the job; not part of its text."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the job, as its EOS does."""
    ignore_eos: bool = False
    """Go on after EOS, until a stop or a limit."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token that the output has already."""
    frequency_penalty: float = 0.0
    """Subtracted from the logit of a token for each time that the output has it already."""
    repetition_penalty: float = 1.0
    """> 1 makes tokens of prompt and output less likely, by dividing what speaks for them."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """What is added to the logits of single tokens, as (token id, bias)."""
    logprobs: int | None = None
    """Also give the log-probability of the chosen token and of so many most likely ones, 0 to 20. Default: none."""

    def __post_init__(self) -> None:
        check = _Check()
        check.range("max_tokens", self.max_tokens, 1, None)
        check.range("min_tokens", self.min_tokens, 0, self.max_tokens)
        check.range("temperature", self.temperature, 0.0, 100.0)
        check.range("top_p", self.top_p, 0.0, 1.0, open_low=True)
        check.range("top_k", self.top_k, 0, None)
        check.range("min_p", self.min_p, 0.0, 1.0)
        check.range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check.range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check.range("repetition_penalty", self.repetition_penalty, 0.0, 10.0, open_low=True)
        if self.seed is not None:
            check.range("seed", self.seed, 0, MAX_SEED)
        if self.logprobs is not None:
            check.range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        check.count("stop", self.stop, MAX_STOP_STRINGS)
        for text in self.stop:
            check.that(
                "stop", 0 < len(text) <= MAX_STOP_CHARACTERS, f"each must have 1 to {MAX_STOP_CHARACTERS} characters"
            )
        check.count("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        check.that("stop_token_ids", all(token >= 0 for token in self.stop_token_ids), "token ids must be ≥ 0")
        check.count("logit_bias", self.logit_bias, MAX_LOGIT_BIAS)
        for token, bias in self.logit_bias:
            check.that("logit_bias", token >= 0, "token ids must be ≥ 0")
            check.range("logit_bias", bias, -100.0, 100.0)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its client wrote it. Exactly one of ``prompt`` and ``messages`` is set.

    Raises ``JobRejected`` (``invalid_value``) naming the first field that does not hold.
    """

    key: JobKey
    model: str
    """The served name, a token of the subject."""
    payload_hash: str
    """SHA-256 of the payload, in hex: tells a repeated job from a conflicting one."""
    prompt: str | tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stream: bool = True
    """False: the text comes in one ``tokens`` record before the ``end``."""
    priority: int = 0
    """Higher goes first, among the jobs of one tenant (weighted fair) or of all (fifo)."""
    deadline_seconds: float | None = None
    """The job ends as expired after so many seconds, counted from the broker's timestamp of it. Default: never."""
    expected_tokens: int | None = None
    """A guess of the output's length in tokens, for shortest job first. Default: learned from the tenant's jobs."""

    def __post_init__(self) -> None:
        check = _Check()
        check.that("tenant", TOKEN.fullmatch(self.key.tenant) is not None, "must match [a-z0-9-]{1,63}")
        check.that("model", TOKEN.fullmatch(self.model) is not None, "must match [a-z0-9-]{1,63}")
        check.that("id", JOB_ID.fullmatch(self.key.id) is not None, "must match [A-Za-z0-9_-]{1,128}")
        check.that("prompt", (self.prompt is None) != (self.messages is None), "give either prompt or messages")
        check.that("prompt", self.prompt is None or len(self.prompt) > 0, "must not be empty")
        check.that("messages", self.messages is None or len(self.messages) > 0, "must not be empty")
        check.range("priority", self.priority, 0, MAX_PRIORITY)
        if self.deadline_seconds is not None:
            check.range("deadline_seconds", self.deadline_seconds, 0.0, None, open_low=True)
        if self.expected_tokens is not None:
            check.range("expected_tokens", self.expected_tokens, 1, None)


class _Check:
    """Conditions on fields, each failing with the field's name and what would hold."""

    def that(self, name: str, holds: bool, message: str) -> None:
        if not holds:
            raise JobRejected(RejectCode.INVALID_VALUE, name, message)

    def count(self, name: str, values: tuple[object, ...], most: int) -> None:
        self.that(name, len(values) <= most, f"has {len(values)} entries; at most {most} are allowed")

    def range(self, name: str, value: float, low: float, high: float | None, open_low: bool = False) -> None:
        """``low ≤ value ≤ high`` (``low < value`` with ``open_low``); NaN and infinity never hold."""
        above = value > low if open_low else value >= low
        if math.isfinite(value) and above and (high is None or value <= high):
            return
        bounds = f"must be {'>' if open_low else '≥'} {low}" + (f" and ≤ {high}" if high is not None else "")
        self.that(name, False, f"{bounds}, not {value}")
