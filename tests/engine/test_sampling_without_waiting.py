"""What is launched for a step asks the device for no value: here the device has none, and would say so.

Tensors on torch's "meta" device have shapes and no data, so whatever looks at a value (``item``, ``nonzero``, a branch)
raises. They are no CPU tensors, so all decisions are those for a GPU.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.last_tokens import LastTokens
from headway.engine.sampled_rows import SampledRow, SampledTokens
from headway.engine.sampling import Sampler
from tests.engine.overlap_cases import EOS, VOCAB_SIZE, samplings

NOWHERE = torch.device("meta")


def make_sequence(number: int, sampling: SamplingParams, output: tuple[int, ...] = ()) -> Sequence:
    prompt = [1, 2, 3]
    return Sequence(number, JobKey("acme", str(number)), sampling, [*prompt, *output], 3, 0.0, frozenset({EOS}))


def launch(sampler: Sampler, sequences: list[Sequence], num_pending: int, dtype: torch.dtype) -> SampledTokens:
    logits = torch.empty((len(sequences), VOCAB_SIZE), dtype=dtype, device=NOWHERE)
    return sampler.launch(logits, [SampledRow(s, s.num_output_tokens + num_pending) for s in sequences])


@settings(deadline=None, max_examples=40)
@given(st.lists(samplings, min_size=1, max_size=6), st.sampled_from([torch.bfloat16, torch.float32]))
def test_steps_are_launched_one_after_the_other_with_no_value_known(
    params: list[SamplingParams], dtype: torch.dtype
) -> None:
    sampler = Sampler(VOCAB_SIZE, NOWHERE)
    sequences = [make_sequence(number, sampling) for number, sampling in enumerate(params)]
    for num_pending in range(3):
        tokens = launch(sampler, sequences, num_pending, dtype)
        assert tokens.tokens.shape == (len(params),)
        copied = tokens._copies._copies
        assert all(copy.numel() <= 2 * len(params) for copy in copied)  # logprobs ask for two tokens at the most
        assert len(copied) == (4 if any(sampling.logprobs is not None for sampling in params) else 1)


def test_the_device_would_have_said_so() -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        launch(Sampler(VOCAB_SIZE, NOWHERE), [make_sequence(0, SamplingParams(logprobs=1))], 0, torch.float32).read()


def plan_of(*chunks: tuple[Sequence, int, int]) -> StepPlan:
    return StepPlan(1, tuple(ScheduledChunk(sequence, start, n, is_sampled=True) for sequence, start, n in chunks))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_tokens_that_are_on_their_way_go_into_the_next_step_and_no_others(device: str) -> None:
    first, second, third = (make_sequence(number, SamplingParams(), output=(7,) * number) for number in range(3))
    tokens = LastTokens()
    tokens.keep(torch.tensor([50, -1, 52], device=device), [0, 1, 2])
    token_ids = torch.tensor([0, 5, 6, 0, 9], device=device)
    newcomer = make_sequence(3, SamplingParams())
    tokens.feed(token_ids, plan_of((third, 5, 1), (newcomer, 0, 2), (second, 4, 1), (first, 2, 1)))
    if device == "cpu":
        assert token_ids.tolist() == [52, 5, 6, 0, 9]  # a row that said nothing goes on from some token


def test_a_step_with_nothing_on_its_way_needs_no_tokens_of_another() -> None:
    token_ids: Tensor = torch.tensor([1, 2, 3])
    LastTokens().feed(token_ids, plan_of((make_sequence(0, SamplingParams()), 0, 3)))
    assert token_ids.tolist() == [1, 2, 3]
