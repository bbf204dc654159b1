"""What the worker's I/O process and its engine child say to each other: one small message each way per step.

msgspec structs, sent as length-prefixed msgpack over a socket pair (`engine.process`); never pickle. This module
and `engine.process` import no torch, so that the I/O process stays small.

    I/O ── Submit, Cancel, Withdraw ──▶ engine child
    I/O ◀─ Loading, Ready, StepReport, Failed ── engine child
"""

from __future__ import annotations

import msgspec

from headway.core.errors import HeadwayError, SettingError, plain
from headway.core.job import FinishReason, JobKey, Message, SamplingParams
from headway.core.records import ErrorInfo, TokenLogprobs, Usage
from headway.core.stats import SchedulerStats, StepStats


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Take this job. Answered by a `SequenceOutput` stream whose last one has ``finish_reason``."""

    key: JobKey
    sampling: SamplingParams
    prompt: str | tuple[int, ...] | None
    messages: tuple[Message, ...] | None
    output_token_ids: tuple[int, ...] = ()
    """Output that the job's log holds already (resumed jobs)."""
    output_text: str = ""
    """The text of those tokens that was delivered already."""
    stream: bool = True
    deadline_seconds: float | None = None
    """Seconds from now until the job expires."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Drop this job: it ends with ``reason`` and no further token. Unknown keys are ignored."""

    key: JobKey
    reason: FinishReason = FinishReason.CANCELLED


class Withdraw(msgspec.Struct, frozen=True, tag=True):
    """Hand this job back: its last output has ``withdrawn`` and no finish reason. Unknown keys are ignored."""

    key: JobKey
    only_if_waiting: bool = False
    """Leave it alone if it has started (a recall)."""


Command = Submit | Cancel | Withdraw


class Loading(msgspec.Struct, frozen=True, tag=True):
    """Progress of the start, for people: what is being done now."""

    stage: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The engine serves. Facts about it that others need."""

    num_pages: int
    page_size: int
    max_model_len: int
    max_num_seqs: int
    vocab_size: int
    model_id: str
    dtype: str
    device: str


class SequenceOutput(msgspec.Struct, frozen=True):
    """What one step gave one job. ``text`` of all outputs together is the job's text so far.

    Text that could still become half a character or a stop string is held back together with its tokens, so
    ``token_ids``, ``logprobs`` and ``text`` of one output always belong together.
    """

    key: JobKey
    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    error: ErrorInfo | None = None
    withdrawn: bool = False
    usage: Usage | None = None
    """In the first output (prompt and cached tokens) and in the last (all)."""
    first_scheduled_at: float | None = None
    """CLOCK_MONOTONIC seconds (one clock for all processes of a machine); set in the last output."""
    first_token_at: float | None = None
    last_token_at: float | None = None


class StepReport(msgspec.Struct, frozen=True, tag=True):
    """What changed since the last report: after every step, and after commands while idle."""

    outputs: tuple[SequenceOutput, ...]
    scheduler: SchedulerStats
    step: StepStats | None = None
    """None if no step was run."""


class WrongSetting(msgspec.Struct, frozen=True):
    """A `SettingError` on its way to the parent."""

    setting: str
    value: str | int | float | bool | None
    fix: str

    @classmethod
    def of(cls, error: SettingError) -> WrongSetting:
        value = plain(error.value)
        return cls(error.setting, value if isinstance(value, str | int | float) else None, error.fix)


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine cannot start or go on; the child exits after it."""

    message: str
    wrong_setting: WrongSetting | None = None
    """What another start will not mend; None: it may."""

    @classmethod
    def of(cls, error: Exception) -> Failed:
        message = str(error) if isinstance(error, HeadwayError) else f"{type(error).__name__}: {error}"
        return cls(message, WrongSetting.of(error) if isinstance(error, SettingError) else None)


Event = Loading | Ready | StepReport | Failed
