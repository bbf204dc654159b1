"""How lengths are drawn."""

from __future__ import annotations

import random

import pytest
from pydantic import TypeAdapter, ValidationError

from loadtest.workloads.distributions import Distribution, draw_tokens

READER = TypeAdapter(Distribution)


def draws(distribution, number: int = 4000) -> list[int]:
    source = random.Random(1)
    return [draw_tokens(READER.validate_python(distribution), source) for _ in range(number)]


def test_a_number_is_always_the_same():
    assert set(draws(17)) == {17}


@pytest.mark.parametrize(
    "distribution",
    [{"kind": "exponential", "mean": 128, "max": 32}, {"kind": "lognormal", "median": 32, "sigma": 1, "max": 32}],
)
def test_what_is_drawn_beyond_the_maximum_is_drawn_again(distribution):
    lengths = draws(distribution)
    assert max(lengths) == 32
    assert 1 <= lengths.count(32) < len(lengths) / 16


def test_an_exponential_without_a_maximum_has_its_mean():
    assert sum(draws({"kind": "exponential", "mean": 128})) / 4000 == pytest.approx(128, rel=0.1)


def test_half_of_a_lognormal_is_below_its_median():
    lengths = draws({"kind": "lognormal", "median": 100, "sigma": 1})
    assert sum(length <= 100 for length in lengths) / 4000 == pytest.approx(0.5, abs=0.05)
    assert max(lengths) > 1000


def test_a_maximum_that_nearly_nothing_is_below_is_what_comes():
    assert draws({"kind": "lognormal", "median": 1e9, "sigma": 0.1, "max": 5}, 1) == [5]


def test_a_range_that_is_upside_down_is_refused():
    with pytest.raises(ValidationError, match="must not be above"):
        READER.validate_python({"kind": "uniform", "min": 5, "max": 4})
