"""How long a step takes, where no model runs."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.batch import StepPlan


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step, linear in what it computes."""

    fixed_seconds: float
    """Of any step: reading the weights, launching what computes."""
    prefill_token_seconds: float = 0.0
    decode_seconds: float = 0.0
    """Of each sequence that decodes."""
    context_token_seconds: float = 0.0
    """Of each token that a decode looks back on."""

    def seconds(self, plan: StepPlan) -> float:
        num_prefill_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.is_prefill)
        contexts = [chunk.end for chunk in plan.chunks if not chunk.is_prefill]
        return (
            self.fixed_seconds
            + self.prefill_token_seconds * num_prefill_tokens
            + self.decode_seconds * len(contexts)
            + self.context_token_seconds * sum(contexts)
        )


EQUAL_STEPS = StepCost(1.0)
"""Every step takes one second, whatever is in it. What remains is the schedule: which slots are filled when. That is
the measure of the ideal ratios of the field, and about true of a GPU whose decode steps wait for the weights."""
