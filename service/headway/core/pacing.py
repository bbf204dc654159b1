"""How many prompt tokens a step may take, so that the sequences that decode keep their time per output token.

TPOT is a mean over a request. So a sequence that has its first token at t is in time as long as its k-th token after
that has come by t + k · target, and the *slack* of a step is what the sequence nearest to its due time leaves:

    slack = min over decodes of (first token at + k · target − when the step begins), kept within
            [LEAST_STEP, MOST_STEP] · target
    room  = slack − predicted time of the decodes, at least LEAST_SHARE · (target − predicted time of the decodes)
    n     = the most prompt tokens that `StepCostModel` predicts to fit into the room

A sequence that has just begun leaves one target, so under steady load steps take about that. Where all are ahead (they
have decoded alone for a while), a prompt may use the time that was saved, but no step is planned for more than
`MOST_STEP` targets, as readers see every gap. What steps take beside the prediction (the loop around them, a wrong
model) makes sequences late, and the next steps shorter. One that is far behind, because it was preempted or the process
was stopped, cannot be caught up with by letting all prompts wait: never less than `LEAST_STEP` targets are planned for,
and prompts never get less than `LEAST_SHARE` of what the target leaves.

**Prompts never starve**, and yet a target that can be kept is kept. A step takes a token of the first prompt in line,
whatever that takes: at the end of a long one it may be milliseconds, and a page of them many targets. Where the decodes
alone take the whole target, it is missed anyway, and a step takes a page of the prompt (or all that it lacks, or as
much as the fixed budgets leave), so that a prompt of n tokens is through after ⌈n / page size⌉ of these.

The fixed budgets (``max_num_batched_tokens``, ``max_prefill_chunk``) stay the most that a step takes, and are all that
holds while nothing decodes, or too few steps were seen to predict one.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.sequence import Sequence
from headway.core.step_cost import StepCostModel, StepWork

LEAST_STEP = 0.75
"""Targets that a step may take at least, however late a sequence is."""
MOST_STEP = 2.0
"""And at most, however much time was saved."""
LEAST_SHARE = 0.5
"""Of what the target leaves beside the decodes, which prompts get at least, so that it is more than nothing where the
decodes take nearly all of it. Late sequences are caught up with by the rest."""


class Pacing:
    """Plans steps by their time. Learns from each that was run.

    ``tpot_target``: seconds per output token. ``least_tokens``: of prompts in a step that cannot keep it.
    """

    def __init__(self, tpot_target: float, least_tokens: int) -> None:
        self._target = tpot_target
        self._least_tokens = least_tokens
        self._model = StepCostModel()

    def allow(self, decodes: Rows[ScheduledChunk], begins_at: float) -> PrefillRoom | None:
        """What a step with these decodes may compute of prompts; None: whatever the fixed budgets say."""
        slack = self._slack(decodes, begins_at)
        if slack is None or not self._model.is_known:
            return None
        seconds = self._model.predict(StepWork.of(decodes))
        if seconds >= self._target:
            return PrefillRoom(self._model, slack - seconds, self._least_tokens)
        room = max(slack - seconds, LEAST_SHARE * (self._target - seconds))
        return PrefillRoom(self._model, room, num_least_left=1)

    def predict(self, chunks: Rows[ScheduledChunk]) -> float | None:
        """Seconds; None: too few steps were seen."""
        return self._model.predict(StepWork.of(chunks)) if self._model.is_known else None

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """``seconds``: of this step alone, not of those that it waited for."""
        self._model.observe(StepWork.of(plan.chunks), seconds)

    def _slack(self, decodes: Rows[ScheduledChunk], begins_at: float) -> float | None:
        """None: nobody waits for a next token."""
        due = [moment for chunk in decodes if (moment := self._due_at(chunk.sequence, begins_at)) is not None]
        if not due:
            return None
        return min(max(min(due) - begins_at, LEAST_STEP * self._target), MOST_STEP * self._target)

    def _due_at(self, sequence: Sequence, begins_at: float) -> float | None:
        """A first token that is pending comes when the step before ends, which is when this one begins."""
        if sequence.first_token_at is None and sequence.num_pending_tokens:
            return begins_at + self._target
        return token_due_at(sequence, self._target)


def token_due_at(sequence: Sequence, tpot_target: float) -> float | None:
    """When its next token has to come for its mean to be the target; None while it has no token of this attempt."""
    if sequence.first_token_at is None:
        return None
    num_tokens = sequence.num_tokens_with_pending - sequence.num_prompt_tokens - sequence.num_restored_tokens
    return sequence.first_token_at + num_tokens * tpot_target


@dataclass(slots=True)
class PrefillRoom:
    """What is left of a step for prompts, while it is planned."""

    model: StepCostModel
    seconds_left: float
    num_least_left: int
    """Tokens that are granted whatever they take."""

    @property
    def num_tokens(self) -> float:
        """What it would hold of a new prompt."""
        return max(self.num_least_left, self.model.num_tokens_within(self.seconds_left, start=0))

    @property
    def is_full(self) -> bool:
        """A part of a token would not be worth a prompt's joining."""
        return self.num_tokens < 1

    def take(self, start: int, num_tokens: int) -> int:
        """As many of a prompt's next tokens as there is room for, at least one while it is not full."""
        if self.is_full:
            return 0
        within = self.model.num_tokens_within(self.seconds_left, start)
        taken = max(1, int(min(num_tokens, max(within, self.num_least_left))))
        self.seconds_left -= self.model.seconds_of_tokens(start, taken)
        self.num_least_left = max(0, self.num_least_left - taken)
        return taken
