from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.sampling import Sampler

VOCAB = 40
EOS = 2


def make_sequence(
    number: int, sampling: SamplingParams, prompt: Iterable[int] = (1,), output: Iterable[int] = ()
) -> Sequence:
    prompt = list(prompt)
    return Sequence(
        number=number,
        key=JobKey("acme", f"job-{number}"),
        sampling=sampling,
        token_ids=[*prompt, *output],
        num_prompt_tokens=len(prompt),
        arrived_at=0.0,
        eos_token_ids=frozenset({EOS}),
    )


def make_sampler() -> Sampler:
    return Sampler(VOCAB, torch.device("cpu"))


def make_logits(num_rows: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return torch.randn((num_rows, VOCAB), generator=torch.Generator().manual_seed(seed)) * scale


def greedy(**params: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **params)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_greedy_takes_the_best_token_in_any_type(dtype: torch.dtype) -> None:
    logits = make_logits(5).to(dtype)
    tokens = make_sampler().sample(logits, [make_sequence(i, greedy()) for i in range(5)])
    assert [token.token_id for token in tokens] == logits.float().argmax(-1).tolist()


def test_sampling_leaves_the_logits_as_they_are() -> None:
    logits = make_logits(2)
    before = logits.clone()
    params = SamplingParams(logit_bias=((3, 5.0),), min_tokens=1, repetition_penalty=2.0, logprobs=1)
    make_sampler().sample(logits, [make_sequence(0, params), make_sequence(1, greedy())])
    assert torch.equal(logits, before)


def test_logit_bias_adds_up_and_can_decide() -> None:
    sequence = make_sequence(0, greedy(logit_bias=((7, 60.0), (7, 60.0), (8, 90.0))))
    [token] = make_sampler().sample(make_logits(1), [sequence])
    assert token.token_id == 7


def test_nothing_ends_a_sequence_before_its_min_tokens() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, EOS], logits[0, 5], logits[0, 9] = 30.0, 20.0, 10.0
    params = greedy(min_tokens=2, stop_token_ids=(5,))
    sampler = make_sampler()
    chosen = [sampler.sample(logits, [make_sequence(0, params, output=[9] * count)])[0].token_id for count in range(4)]
    assert chosen == [9, 9, EOS, EOS]


def test_an_ignored_eos_is_a_token_like_others_before_min_tokens() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, EOS] = 30.0
    [token] = make_sampler().sample(logits, [make_sequence(0, greedy(min_tokens=2, ignore_eos=True))])
    assert token.token_id == EOS


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = make_logits(2)
    params = SamplingParams(logprobs=3, seed=1, temperature=0.5, logit_bias=((4, 100.0),), presence_penalty=1.0)
    biased, plain = make_sampler().sample(logits, [make_sequence(0, params), make_sequence(1, greedy())])
    own = logits[0].log_softmax(-1)
    assert plain.logprobs is None
    assert biased.token_id == 4
    assert biased.logprobs is not None
    assert biased.logprobs.logprob == pytest.approx(own[4].item())
    assert [token for token, _ in biased.logprobs.top] == own.topk(3).indices.tolist()
    assert [value for _, value in biased.logprobs.top] == pytest.approx(own.topk(3).values.tolist())


def test_logprobs_of_nought_name_the_chosen_token_only() -> None:
    [token] = make_sampler().sample(make_logits(1), [make_sequence(0, greedy(logprobs=0))])
    assert token.logprobs is not None
    assert token.logprobs.top == ()


def penalised(logits: Tensor, sequence: Sequence) -> Tensor:
    """The penalties of one row as their definitions say, from the whole history."""
    sampling = sequence.sampling
    scores = logits.clone()
    for token in set(sequence.token_ids):
        scores[token] *= sampling.repetition_penalty if scores[token] < 0 else 1 / sampling.repetition_penalty
    for token, count in Counter(sequence.output_token_ids).items():
        scores[token] -= count * sampling.frequency_penalty + sampling.presence_penalty
    return scores


penalties = st.builds(
    greedy,
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.7]),
    presence_penalty=st.sampled_from([0.0, -1.5, 2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.7, 1.1]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(penalties, min_size=1, max_size=12), st.integers(0, 10**6))
def test_penalties_follow_the_whole_history_as_it_grows(params: list[SamplingParams], seed: int) -> None:
    """Sequences come, skip steps, leave and make room for others; resumed ones start with output."""
    chance = random.Random(seed)
    sampler = make_sampler()
    sequences = [
        make_sequence(i, p, prompt=chance.choices(range(VOCAB), k=5), output=chance.choices(range(VOCAB), k=i % 3))
        for i, p in enumerate(params)
    ]
    for step in range(8):
        rows = chance.sample(sequences, k=chance.randint(1, len(sequences)))
        logits = make_logits(len(rows), seed=seed + step).double()
        tokens = sampler.sample(logits, rows)
        for row, sequence, token in zip(logits, rows, tokens, strict=True):
            assert token.token_id == penalised(row, sequence).argmax().item()
            sequence.token_ids.append(token.token_id)
        left = sequences.pop(0)
        sampler.forget(left)
        sequences.append(make_sequence(100 + step, left.sampling, prompt=[step]))


sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.0, 3.0]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([0.8, 1.0]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    min_tokens=st.sampled_from([0, 3]),
    logit_bias=st.sampled_from([(), ((3, 2.0), (4, -100.0))]),
    logprobs=st.sampled_from([None, 2]),
    seed=st.sampled_from([None, 11]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(sampling, min_size=2, max_size=8))
def test_a_sequence_samples_the_same_alone_and_in_any_company(params: list[SamplingParams]) -> None:
    together, apart = make_sampler(), [make_sampler() for _ in params]
    sequences = [make_sequence(i, p) for i, p in enumerate(params)]
    for step in range(5):
        logits = make_logits(len(params), seed=step)
        tokens = together.sample(logits, sequences)
        for row, (sequence, sampler) in enumerate(zip(sequences, apart, strict=True)):
            assert sampler.sample(logits[row : row + 1], [sequence]) == [tokens[row]]
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token.token_id)


def test_jobs_without_a_seed_sample_differently() -> None:
    sequences = [make_sequence(i, SamplingParams()) for i in range(50)]
    tokens = make_sampler().sample(torch.zeros(50, VOCAB), sequences)
    assert len({token.token_id for token in tokens}) > 20


def test_no_two_positions_of_a_sequence_share_a_number() -> None:
    sequences = [make_sequence(i, SamplingParams(seed=1), output=[5] * i) for i in range(50)]
    tokens = make_sampler().sample(torch.zeros(50, VOCAB), sequences)
    assert len({token.token_id for token in tokens}) > 20
