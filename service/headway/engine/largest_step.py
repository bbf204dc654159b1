"""The largest step that the settings allow, run once to see what memory it takes.

    tokens       max_num_batched_tokens, shared out evenly; every sequence is sampled, and asks for all that a job can
    sequences    max_num_seqs; one of them ends at the model's limit, so the page table is as wide as it can be

A step's memory depends on these numbers and not on where keys and values lie, so one page serves for all: what is read
there is nonsense, of the right shape. Twice, because penalties keep counts from step to step, and the second step finds
those of the first. Nothing of it stays: pages, counts and sequences go when it returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import MAX_LOGPROBS, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine.forward import EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from headway.engine.page_scales import Scales
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.trial_chunks import trial_chunk

_COSTLY = SamplingParams(
    max_tokens=8,
    min_tokens=8,
    temperature=100.0,
    top_p=0.999,
    top_k=0,
    min_p=1e-9,
    presence_penalty=0.1,
    frequency_penalty=0.1,
    repetition_penalty=1.1,
    logit_bias=((0, 1.0),),
    stop_token_ids=(0,),
    logprobs=MAX_LOGPROBS,
)
"""Nearly every token is as likely as any other, so that finding the nucleus takes the whole vocabulary."""


def run_largest_step(
    loaded: LoadedModel, scheduling: SchedulerConfig, page_size: int, scales: Sequence[Scales] | None = None
) -> None:
    """``scales`` as the pages will have them: with them the kernels are others."""
    cache = KvCache(loaded, 1, page_size, scales)
    for pages in (*cache.key_pages, *cache.value_pages):
        pages.zero_()
    sampler = Sampler(loaded.vocab_size, loaded.device)
    runner = Runner(EagerForward(loaded, cache), sampler, loaded.device, page_size)
    plan = largest_plan(scheduling, loaded.max_model_len, page_size, loaded.vocab_size)
    for _ in range(2):
        runner.run(plan)


def largest_plan(scheduling: SchedulerConfig, max_model_len: int, page_size: int, vocab_size: int) -> StepPlan:
    num_sequences = scheduling.max_num_seqs
    each, rest = divmod(scheduling.num_step_tokens, num_sequences)
    lengths = [min(each + (number < rest), max_model_len) for number in range(num_sequences)]
    chunks = [_chunk(number, length, length, page_size, vocab_size) for number, length in enumerate(lengths)]
    chunks[0] = _chunk(0, max_model_len, lengths[0], page_size, vocab_size)
    return StepPlan(0, tuple(chunks))


def _chunk(number: int, num_tokens: int, num_new: int, page_size: int, vocab_size: int) -> ScheduledChunk:
    token_ids = [(number + position) % vocab_size for position in range(num_tokens)]
    return trial_chunk(number, token_ids, num_new, [0] * -(-num_tokens // page_size), _COSTLY)
