"""How a worker forms its batches. Measured values (pages, the model's length) are arguments, not settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.core.errors import SettingError


class Batching(StrEnum):
    CONTINUOUS = "continuous"
    """A sequence joins at any step and leaves in the step that ends it."""
    STATIC = "static"
    """A batch lives until its longest member ends: the baseline to compare with."""


class PrefixSharing(StrEnum):
    """Whose prompts may share pages. Sharing shows in the time to first token, so a tenant could probe what others
    ask: hence `TENANT` unless all clients trust each other."""

    OFF = "off"
    TENANT = "tenant"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    batching: Batching = Batching.CONTINUOUS
    """continuous, or static (the baseline: a batch lives until its longest member ends)."""
    max_num_seqs: int = 64
    """Most sequences that run at the same time."""
    max_num_batched_tokens: int = 2048
    """Most tokens computed in one step; bounds how long a step can delay the sequences that decode."""
    max_prefill_chunk: int = 512
    """Most tokens of one prompt in one step, so that a long prompt leaves room for short ones behind it. Up to
    max_num_batched_tokens: larger is faster for a long prompt that is alone."""
    page_watermark_low: float = 0.05
    """Fraction of the KV pages that admission leaves available for running sequences to grow into; falling below
    it holds admission."""
    page_watermark_high: float = 0.1
    """Fraction of the KV pages that must be available again before admission goes on after it was held."""
    max_preemptions: int = 3
    """A sequence that was preempted this often is preempted again only if no other can be."""
    prefix_sharing: PrefixSharing = PrefixSharing.TENANT
    """Who shares the KV pages of equal prompt beginnings: off (nobody), tenant (jobs of one tenant) or all."""

    def __post_init__(self) -> None:
        _check(self.max_num_seqs >= 1, "max_num_seqs", self.max_num_seqs, "must be ≥ 1")
        tokens, chunk = self.max_num_batched_tokens, self.max_prefill_chunk
        _check(
            tokens >= self.max_num_seqs,
            "max_num_batched_tokens",
            tokens,
            f"must be ≥ max_num_seqs ({self.max_num_seqs}), so that every running sequence gets a token in each step",
        )
        _check(1 <= chunk <= tokens, "max_prefill_chunk", chunk, f"must be ≥ 1 and ≤ max_num_batched_tokens ({tokens})")
        low, high = self.page_watermark_low, self.page_watermark_high
        _check(0.0 <= low < 1.0, "page_watermark_low", low, "must be ≥ 0 and < 1")
        _check(low <= high < 1.0, "page_watermark_high", high, f"must be ≥ page_watermark_low ({low}) and < 1")
        _check(self.max_preemptions >= 0, "max_preemptions", self.max_preemptions, "must be ≥ 0")


def _check(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
