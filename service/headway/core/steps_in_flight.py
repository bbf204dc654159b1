"""The steps whose results are not known yet, oldest first: one that runs, and those that run after it.

    schedule k ─ schedule k+1 ─ update k ─ schedule k+2 ─ update k+1 ─ …       one runs while the next is planned

They run one after the other and are updated in that order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.sequence import Sequence


class StepsInFlight:
    """Counts, in the sequences, what the steps will have done when they have ended."""

    def __init__(self) -> None:
        self._plans: deque[StepPlan] = deque()
        self._end_at = 0.0
        """When all of them will have ended, as far as their time is predicted."""

    def begin_at(self, now: float) -> float:
        """When a step that is planned now will begin: after those in flight."""
        return max(now, self._end_at) if self._plans else now

    def add(self, plan: StepPlan, now: float) -> None:
        """From now on its tokens count as computed."""
        self._end_at = self.begin_at(now) + (plan.predicted_seconds or 0.0)
        self._plans.append(plan)
        for chunk in plan.chunks:
            chunk.sequence.num_steps_in_flight += 1
            chunk.sequence.num_computed_tokens = chunk.end
            chunk.sequence.num_pending_tokens += chunk.is_sampled

    def remove(self, plan: StepPlan, now: float) -> None:
        """It has ended; what became of its pending tokens is for the caller to say."""
        oldest = self._plans.popleft()
        assert oldest is plan, f"step {plan.number} is updated before step {oldest.number}"
        self._end_at = now + sum(later.predicted_seconds or 0.0 for later in self._plans)
        for chunk in plan.chunks:
            chunk.sequence.num_steps_in_flight -= 1

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Assert that these, which have not ended, know what is in flight."""
        chunks = [chunk for plan in self._plans for chunk in plan.chunks]
        parts, tokens = _count(chunks), _count(chunk for chunk in chunks if chunk.is_sampled)
        for sequence in sequences:
            assert sequence.num_steps_in_flight == parts[sequence.number]
            assert sequence.num_pending_tokens == tokens[sequence.number]


def _count(chunks: Iterable[ScheduledChunk]) -> Counter[int]:
    return Counter(chunk.sequence.number for chunk in chunks)
