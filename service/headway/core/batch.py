"""What the scheduler and the runner exchange: a plan for one step, and its result.

    Scheduler.schedule(now) ──StepPlan──▶ Runner.launch(plan) ──StepResult──▶ Scheduler.update(plan, result, now)

The scheduler never runs the model, so it is tested with hand-made results; the runner decides nothing. A step is *in
flight* from its schedule to its update; others may be scheduled meanwhile, and all are updated in their order. So a
plan says what was true when it was made, whatever becomes of its sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.records import TokenLogprobs
from headway.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """The tokens of one sequence in one step: ``sequence.token_ids[start : start + num_tokens]``.

    Its page table already covers ``start + num_tokens`` tokens. A single token may be pending: the step before in
    flight samples it.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    is_sampled: bool
    """Whether the chunk reaches the end of the sequence, so that its last row yields the next token."""

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def output_position(self) -> int:
        """The place in the sequence's output, from 0, of the token that its last row yields."""
        return self.end - self.sequence.num_prompt_tokens

    @property
    def is_prefill(self) -> bool:
        """Whether it holds tokens that were not sampled in the step before (prompt, or recomputation)."""
        return self.num_tokens > 1 or self.start < self.sequence.num_prompt_tokens


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: decodes first, then prefill chunks. An empty plan means that there is nothing to do."""

    number: int
    chunks: tuple[ScheduledChunk, ...]
    preempted: tuple[Sequence, ...] = ()
    prefill_budget: int | None = None
    """Prompt tokens that its decodes left room for (`core.pacing`); None: the fixed budgets decided."""
    predicted_seconds: float | None = None

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class SampledToken:
    token_id: int
    logprobs: TokenLogprobs | None = None
    completes_stop: bool = False
    """The text up to this token holds one of the job's stop strings (found by the detokenizer)."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """One sampled token for every chunk of the plan with ``is_sampled``, by ``sequence.number``.

    It may lack sequences that were preempted or ended while the step was in flight.
    """

    sampled: Mapping[int, SampledToken]
    failed: Mapping[int, str] = field(default_factory=dict)
    """Sequences that could not be computed, and why. They have no token, and are ended before `Scheduler.update`."""
    seconds: float | None = None
    """What the step took; None: not measured, or not what such a step takes."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step changed, as `Scheduler.update` applied it."""

    appended: tuple[Sequence, ...]
    """Sequences that got a token (the last of their ``token_ids``), finished ones included."""
    finished: tuple[Sequence, ...]
    """Sequences that ended in this step; their pages are free already."""
