"""The two ways to a least weight, the one that looks and the one that never asks, agree to the last bit."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.job import SamplingParams
from headway.engine.filters import Filters, _settled_without_asking, _sorted_where_needed
from headway.engine.nucleus import bisect

ONE = 2**40


@st.composite
def cases(draw: st.DrawFn) -> tuple[torch.Tensor, Filters]:
    """Weights with many ties and many zeros, on vocabularies that are smaller and larger than the candidates."""
    num_rows = draw(st.integers(1, 5))
    vocab_size = draw(st.sampled_from([1, 5, 256, 257, 900]))
    num_levels = draw(st.sampled_from([1, 2, 30, ONE]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    levels = torch.randint(0, num_levels, (num_rows, vocab_size), generator=generator)
    weights = levels * (ONE // num_levels)
    weights[:, draw(st.integers(0, vocab_size - 1))] = ONE
    params = st.builds(
        SamplingParams,
        top_k=st.sampled_from([0, 1, 3, 255, 256, 257, 10**30]),
        top_p=st.sampled_from([0.01, 0.5, 0.9, 0.9999, 1.0]),
    )
    rows = draw(st.lists(params, min_size=num_rows, max_size=num_rows))
    rows[0] = SamplingParams(top_p=0.9)
    return weights, Filters.of(rows, ONE)


@settings(deadline=None, max_examples=200)
@given(cases())
def test_bisection_finds_what_sorting_finds(case: tuple[torch.Tensor, Filters]) -> None:
    weights, filters = case
    weights = weights[filters.ranked]
    top_k = torch.from_numpy(np.minimum(filters.top_k, weights.shape[1]))
    top_p = torch.from_numpy(filters.top_p)
    expected = _sorted_where_needed(weights, top_k, top_p).tolist()
    assert _settled_without_asking(weights, top_k, top_p, filters.top_k).tolist() == expected
    drawn = torch.where(weights >= bisect(weights, top_k, top_p).unsqueeze(-1), weights, 0)
    assert drawn.tolist() == torch.where(weights >= torch.tensor(expected).unsqueeze(-1), weights, 0).tolist()
