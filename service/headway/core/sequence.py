"""A sequence: a job inside the engine.

There is no prefill phase and no decode phase, only a sequence whose ``num_computed_tokens`` (keys and values in
its pages) is catching up with its tokens (vLLM v1). A sequence is *sampled* in the step whose tokens reach its end.

A step may be planned while the one before it runs. What that one computes counts as computed, and a token that it
samples is *pending*: it has its place in the sequence, and a value as soon as the step has ended.

    prompt  output  pending          num_tokens = 7, num_tokens_with_pending = 8
    ■ ■ ■ ■ ■ ■ ■      □
    └─ num_computed ─┘ └─ the next step computes it, and samples the one behind it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from headway.core.job import FinishReason, JobKey, SamplingParams


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    """Not admitted yet, or preempted: holds no pages."""
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Facts about one sequence; what can be derived is a property. Only the scheduler changes it.

    All times are seconds on the engine's monotonic clock; None until it happened.
    """

    number: int
    """Unique in this engine, rising in order of arrival."""
    key: JobKey
    sampling: SamplingParams
    token_ids: list[int]
    """Prompt, then output. A resumed sequence starts with the output that its log holds."""
    num_prompt_tokens: int
    arrived_at: float
    eos_token_ids: frozenset[int] = frozenset()
    sharing_namespace: str = ""
    """Sequences share prefix pages only within one namespace (by default: the tenant)."""

    status: SequenceStatus = SequenceStatus.WAITING
    finish_reason: FinishReason | None = None
    """None until it has ended, and for ever if it was withdrawn."""
    num_computed_tokens: int = 0
    """Of which keys and values are in its pages, or will be when the steps in flight have ended."""
    num_pending_tokens: int = 0
    """Tokens behind ``token_ids`` that steps in flight sample."""
    num_steps_in_flight: int = 0
    """Steps with a part of it whose results are not known yet."""
    page_table: list[int] = field(default_factory=list)
    """Page ids; slot of token t: ``page_table[t // page_size] * page_size + t % page_size``."""
    page_keys: list[bytes] = field(default_factory=list)
    """Chained hashes of the first full pages of ``token_ids``, as far as they were needed (`core.page_keys`)."""
    num_restored_tokens: int = 0
    """Output tokens that it came with, from earlier attempts."""
    num_cached_tokens: int = 0
    """Prompt tokens that were found in shared pages at the first admission."""
    num_preemptions: int = 0
    num_discarded_tokens: int = 0
    """How far ``num_computed_tokens`` had come before a preemption: computing tokens below it is recomputation."""
    first_scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_tokens_with_pending(self) -> int:
        return len(self.token_ids) + self.num_pending_tokens

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose keys and values are still missing; 1 for a sequence that decodes."""
        return self.num_tokens_with_pending - self.num_computed_tokens
