"""A step in the making: its chunks, and how many tokens it still takes."""

from __future__ import annotations

from headway.core.batch import ScheduledChunk
from headway.core.pacing import PrefillRoom
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence


class StepDraft:
    def __init__(self, config: SchedulerConfig, page_size: int) -> None:
        self.chunks: list[ScheduledChunk] = []
        self.num_tokens_left = config.num_step_tokens
        self.prefill_budget: int | None = None
        """Tokens of a new prompt that there was room for; None: only their number counted."""
        self._max_chunk = config.num_chunk_tokens
        self._max_prompts = config.num_step_tokens // config.num_chunk_tokens
        self._page_size = page_size
        self._room: PrefillRoom | None = None

    def open(self, room: PrefillRoom | None, num_prompts: int) -> None:
        """From now on prompts are taken: only what there is room for, and of each a share, as a long one must not keep
        short ones behind it waiting; one that is alone gets all. ``room`` None: the fixed budgets do both."""
        if room is None:
            return
        self._room = room
        self.prefill_budget = int(min(self.num_tokens_left, room.num_tokens))
        share = -(-self.prefill_budget // max(1, min(num_prompts, self._max_prompts)))
        self._max_chunk = min(self._max_chunk, max(self._page_size, share))

    @property
    def is_full(self) -> bool:
        return not self.num_tokens_left or (self._room is not None and self._room.is_full)

    def take(self, sequence: Sequence) -> None:
        """Add as much of what the sequence lacks as there is room for."""
        start, num_uncomputed = sequence.num_computed_tokens, sequence.num_uncomputed_tokens
        num_tokens = min(num_uncomputed, self._max_chunk, self.num_tokens_left)
        if num_tokens and self._room is not None:
            num_tokens = self._room.take(start, num_tokens)
        if num_tokens:
            self.chunks.append(ScheduledChunk(sequence, start, num_tokens, is_sampled=num_tokens == num_uncomputed))
            self.num_tokens_left -= num_tokens
