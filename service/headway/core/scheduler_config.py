"""How a worker forms its batches. Measured values (pages, the model's length) are arguments, not settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core.errors import SettingError

NUM_STEP_TOKENS = 2048
"""Of a step where neither a setting nor the device says: enough to keep a GPU busy."""


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
    max_num_batched_tokens: int | None = None
    """Most tokens computed in one step; bounds how long a step can delay the sequences that decode. Default: 512 on a
    CPU, where 2048 would take seconds, and 2048 on a GPU; more if max_num_seqs or max_prefill_chunk is."""
    max_prefill_chunk: int | None = None
    """Most tokens of one prompt in one step, so that a long prompt leaves room for short ones behind it. Up to
    max_num_batched_tokens, which is somewhat faster for a long prompt that is alone. Default: a quarter of it."""
    tpot_target: float | None = None
    """Seconds per output token that sequences are to keep. The engine learns what its steps take, and prompts get no
    more of a step than that leaves them, within the two limits above, but never nothing. Default: only these limits."""
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
        tokens, chunk = self.num_step_tokens, self.num_chunk_tokens
        _check(
            tokens >= self.max_num_seqs,
            "max_num_batched_tokens",
            tokens,
            f"must be ≥ max_num_seqs ({self.max_num_seqs}), so that every running sequence gets a token in each step",
        )
        _check(1 <= chunk <= tokens, "max_prefill_chunk", chunk, f"must be ≥ 1 and ≤ max_num_batched_tokens ({tokens})")
        target = self.tpot_target
        if target is not None:
            _check(0.0 < target < math.inf, "tpot_target", target, "must be > 0, in seconds, or none")
            is_paced = self.batching is Batching.CONTINUOUS
            _check(is_paced, "tpot_target", target, "has no meaning in a static batch; leave it out")
        low, high = self.page_watermark_low, self.page_watermark_high
        _check(0.0 <= low < 1.0, "page_watermark_low", low, "must be ≥ 0 and < 1")
        _check(low <= high < 1.0, "page_watermark_high", high, f"must be ≥ page_watermark_low ({low}) and < 1")
        _check(self.max_preemptions >= 0, "max_preemptions", self.max_preemptions, "must be ≥ 0")

    @property
    def num_step_tokens(self) -> int:
        """`max_num_batched_tokens`, or what it is where nobody decided."""
        tokens = self.max_num_batched_tokens
        return self._step_tokens(NUM_STEP_TOKENS) if tokens is None else tokens

    @property
    def num_chunk_tokens(self) -> int:
        """`max_prefill_chunk`, or what follows from the step's tokens."""
        chunk = self.max_prefill_chunk
        return max(1, self.num_step_tokens // 4) if chunk is None else chunk

    def with_default_tokens(self, num_tokens: int) -> SchedulerConfig:
        """Steps of ``num_tokens``, unless a setting says or needs otherwise."""
        if self.max_num_batched_tokens is not None:
            return self
        return replace(self, max_num_batched_tokens=self._step_tokens(num_tokens))

    def _step_tokens(self, default: int) -> int:
        return max(default, self.max_num_seqs, self.max_prefill_chunk or 0)


def _check(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
