"""How much of its slots each way of batching uses for the same jobs, computed without a model.

The real scheduler of the engine runs over the jobs' real lengths, as the demo measured them, with tokens that mean
nothing. Both ways have the same slots, and count the same: a slot is busy in a step if it computes something for a job
that has not ended. So the difference is due to batching alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.batch import SampledToken, StepResult
from headway.core.job import JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.core.sequence import Sequence as EngineSequence

PAGE_SIZE = 16
FIRST_TOKEN, ANY_TOKEN = 0, 1


@dataclass(frozen=True, slots=True)
class JobLength:
    """One job as the scheduler sees it, in tokens."""

    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    num_steps: int
    num_busy_slots: int
    """Summed over the steps."""
    num_slots: int
    """Summed over the steps."""

    @property
    def share(self) -> float:
        """0 to 1; 0 if nothing ran."""
        return self.num_busy_slots / self.num_slots if self.num_slots else 0.0


def simulate(batching: Batching, lengths: Sequence[JobLength], config: SchedulerConfig) -> Utilisation:
    """All jobs wait at the start, in this order, and there are pages enough for all."""
    longest = max((length.num_prompt_tokens + length.num_output_tokens for length in lengths), default=1) + 1
    pool = PagePool(num_pages=(longest // PAGE_SIZE + 1) * max(len(lengths), 1) * 2, page_size=PAGE_SIZE)
    config = dataclasses.replace(config, batching=batching, prefix_sharing=PrefixSharing.OFF)
    scheduler = Scheduler(config, pool, max_model_len=longest)
    for number, length in enumerate(lengths, start=1):
        scheduler.add(_sequence(number, length))
    num_steps = num_busy_slots = 0
    while scheduler.has_work:
        plan = scheduler.schedule(now=float(num_steps))
        sampled = {chunk.sequence.number: SampledToken(ANY_TOKEN) for chunk in plan.chunks if chunk.is_sampled}
        scheduler.update(plan, StepResult(sampled), now=float(num_steps))
        num_steps += 1
        num_busy_slots += len(plan.chunks)
    return Utilisation(num_steps, num_busy_slots, num_steps * config.max_num_seqs)


def _sequence(number: int, length: JobLength) -> EngineSequence:
    return EngineSequence(
        number=number,
        key=JobKey("demo", str(number)),
        sampling=SamplingParams(max_tokens=length.num_output_tokens),
        token_ids=[FIRST_TOKEN] * length.num_prompt_tokens,
        num_prompt_tokens=length.num_prompt_tokens,
        arrived_at=0.0,
    )
