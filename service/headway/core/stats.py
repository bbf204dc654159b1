"""What the parts report about themselves, apart from who exports it (telemetry turns these into metrics)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PageStats:
    """free + cached + used = total; cached pages hold shareable prefixes that nobody uses now."""

    num_total: int
    num_free: int
    num_cached: int
    num_used: int

    @property
    def num_available(self) -> int:
        return self.num_free + self.num_cached


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """State after a step. Counters (``num_…_total``) only rise."""

    num_running: int
    num_waiting: int
    waiting_pages: int
    """Pages that the waiting sequences need to be admitted."""
    admissible_pages: int
    """Pages that admission may still take now (available, above the watermark; 0 while admission is held; under static
    batching the whole pool, which is the next batch's)."""
    pages: PageStats
    num_preemptions_total: int
    num_recomputed_tokens_total: int
    num_busy_slots_total: int
    """Slots that ran a chunk, summed over steps."""
    num_slots_total: int
    """Slots there were (max_num_seqs; in a static batch its rows), summed over steps with work."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step."""

    number: int
    seconds: float
    schedule_seconds: float
    num_prefill_tokens: int
    num_decode_tokens: int
    num_sequences: int
    prefill_budget: int | None = None
    """Prompt tokens that the decodes left room for under ``tpot_target``; None: the fixed budgets decided."""
    predicted_seconds: float | None = None
    """Before it was run; None: nothing predicts steps, or not yet."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The jobs of one model that wait for a worker."""

    num_waiting: int = 0
    num_waiting_by_tenant: Mapping[str, int] = field(default_factory=dict)
    num_backlog_tokens: int = 0
    """Prompt and predicted output tokens."""
    num_backlog_pages: int = 0
    """Pages for these, each job's rounded up to whole pages."""
    oldest_wait_seconds: float = 0.0
    num_payload_bytes: int = 0
    """Held in memory; the other payloads are fetched from the stream at grant."""
