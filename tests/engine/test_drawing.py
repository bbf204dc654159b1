from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.core.job import SamplingParams
from headway.engine.drawing import Draws, draw
from headway.engine.rng import uniforms

VOCAB = 12
NUM_DRAWS = 20_000


def reference_distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """Temperature, top-k, top-p and min-p of one row, by the book, in float64."""
    probabilities = (logits.double() / params.temperature).softmax(-1)
    if params.top_k:
        least = probabilities.topk(min(params.top_k, VOCAB)).values[-1]
        probabilities = torch.where(probabilities >= least, probabilities, 0)
    probabilities /= probabilities.sum()
    ranked, order = probabilities.sort(descending=True)
    is_kept = ranked.cumsum(-1) - ranked < params.top_p
    probabilities[order[~is_kept]] = 0
    probabilities[probabilities < params.min_p * probabilities.max()] = 0
    return probabilities / probabilities.sum()


def frequencies(logits: Tensor, params: SamplingParams) -> np.ndarray:
    numbers = uniforms([3] * NUM_DRAWS, list(range(NUM_DRAWS)))
    tokens = draw(logits.expand(NUM_DRAWS, -1), Draws([params] * NUM_DRAWS, numbers))
    return np.bincount(tokens.numpy(), minlength=VOCAB)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.6),
        SamplingParams(temperature=2.5),
        SamplingParams(top_k=4),
        SamplingParams(top_p=0.7),
        SamplingParams(min_p=0.2),
        SamplingParams(temperature=1.7, top_k=7, top_p=0.9, min_p=0.1),
    ],
    ids=["plain", "cold", "hot", "top-k", "top-p", "min-p", "all"],
)
def test_tokens_come_as_often_as_their_probability_says(params: SamplingParams) -> None:
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 2
    expected = reference_distribution(logits, params).numpy() * NUM_DRAWS
    counts = frequencies(logits, params)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_square < 31.3  # 0.1 % of fair samples exceed it, with 11 degrees of freedom


@st.composite
def rows(draw_from: st.DrawFn) -> tuple[Tensor, list[SamplingParams], np.ndarray]:
    """Up to 9 rows with filters of all kinds; large vocabularies reach the search beyond the first candidates."""
    num_rows = draw_from(st.integers(2, 9))
    vocab_size = draw_from(st.sampled_from([5, 300, 1031]))
    spread = draw_from(st.sampled_from([0.0, 0.1, 4.0]))
    params = st.builds(
        SamplingParams,
        temperature=st.sampled_from([1e-30, 0.3, 1.0, 50.0]),
        top_k=st.sampled_from([0, 1, 3, 270, 10**30]),
        top_p=st.sampled_from([0.05, 0.9, 0.999, 1.0]),
        min_p=st.sampled_from([0.0, 0.3, 1.0]),
    )
    generator = torch.Generator().manual_seed(draw_from(st.integers(0, 10**6)))
    logits = torch.randn((num_rows, vocab_size), generator=generator) * spread
    numbers = torch.rand(num_rows, dtype=torch.float64, generator=generator).numpy()
    return logits, draw_from(st.lists(params, min_size=num_rows, max_size=num_rows)), numbers


@settings(deadline=None, max_examples=150)
@given(rows())
def test_a_row_draws_the_same_alone_and_in_any_company(batch: tuple[Tensor, list[SamplingParams], np.ndarray]) -> None:
    logits, params, numbers = batch
    together = draw(logits, Draws(params, numbers)).tolist()
    rows = [slice(row, row + 1) for row in range(len(params))]
    alone = [draw(logits[row], Draws(params[row], numbers[row])).item() for row in rows]
    reverse = draw(logits.flip(0), Draws(params[::-1], numbers[::-1].copy())).flip(0).tolist()
    assert together == alone == reverse


@settings(deadline=None, max_examples=150)
@given(rows())
def test_a_drawn_token_is_one_that_the_filters_leave(batch: tuple[Tensor, list[SamplingParams], np.ndarray]) -> None:
    logits, params, numbers = batch
    for row, token in enumerate(draw(logits, Draws(params, numbers)).tolist()):
        temperature = max(params[row].temperature, 1e-5)
        probabilities = (logits[row].double() / temperature).softmax(-1)
        better = probabilities[probabilities > probabilities[token] * (1 + 1e-4)]
        assert len(better) < (params[row].top_k or logits.shape[1])
        assert better.sum() < params[row].top_p + 1e-6 or params[row].top_k
        assert probabilities[token] >= params[row].min_p * probabilities.max() * (1 - 1e-4)


def test_a_nucleus_wider_than_the_first_candidates_is_found() -> None:
    flat = torch.zeros(1, 4000)
    flat[0, :2000] = 1.0
    highest = draw(flat, Draws([SamplingParams(top_p=0.5)], np.array([1 - 2**-53]))).item()
    assert highest == 1999  # the better half holds e / (1 + e) = 73 %; all of it ties, so all of it is kept


def test_the_last_token_is_reached_and_nothing_behind_it() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf, 2.0, -torch.inf]])
    assert draw(logits, Draws([SamplingParams()], np.array([1 - 2**-53]))).item() == 3
    assert draw(logits, Draws([SamplingParams()], np.array([0.0]))).item() == 0


@pytest.mark.parametrize("num_equal", [1, 3, 8191, 8193, 12345, 16384, 16385, 65535])
@pytest.mark.parametrize("last", [0.0, -0.7, -20.0])
def test_the_largest_number_draws_the_last_token_whatever_the_total_is_rounded_to(num_equal: int, last: float) -> None:
    """With more than 8192 tokens as likely as the best the total needs more bits than a float64 has."""
    logits = torch.full((1, num_equal + 9), -torch.inf)
    logits[0, :num_equal] = 0.0
    logits[0, num_equal] = last
    assert draw(logits, Draws([SamplingParams()], np.array([1 - 2**-53]))).item() == num_equal


def test_a_broken_model_draws_no_token_that_does_not_exist() -> None:
    logits = torch.full((3, VOCAB), torch.nan)
    params = [SamplingParams(), SamplingParams(top_k=3), SamplingParams(top_p=0.5, min_p=0.1)]
    assert all(0 <= token < VOCAB for token in draw(logits, Draws(params, np.array([0.0, 0.5, 0.9]))).tolist())
