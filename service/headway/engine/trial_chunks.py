"""Chunks of sequences that no job asked for: to measure with."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from headway.core.batch import ScheduledChunk
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence

GREEDY = SamplingParams(temperature=0.0)


def trial_chunk(
    number: int, token_ids: Tokens[int], num_new: int, page_table: list[int], sampling: SamplingParams = GREEDY
) -> ScheduledChunk:
    """The last ``num_new`` of a sequence's tokens, in its pages; the next one is sampled."""
    sequence = Sequence(
        number=number,
        key=JobKey("trial", str(number)),
        sampling=sampling,
        token_ids=list(token_ids),
        num_prompt_tokens=len(token_ids),
        arrived_at=0.0,
        page_table=page_table,
    )
    return ScheduledChunk(sequence, len(token_ids) - num_new, num_new, is_sampled=True)
