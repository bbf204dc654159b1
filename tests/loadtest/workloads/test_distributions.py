from __future__ import annotations

import random
import statistics

import pytest
from pydantic import TypeAdapter, ValidationError

from loadtest.workloads.distributions import Distribution, draw_tokens

MANY = 4000


def distribution(value: object):
    return TypeAdapter(Distribution).validate_python(value)


def drawn(value: object, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    of = distribution(value)
    return [of.draw(rng) for _ in range(MANY)]


def test_a_number_is_always_the_same():
    assert set(drawn(512)) == {512.0}


def test_a_uniform_length_lies_between_its_ends_and_in_the_middle_on_average():
    values = drawn({"kind": "uniform", "min": 10, "max": 30})
    assert 10 <= min(values) < 11
    assert 29 < max(values) <= 30
    assert statistics.fmean(values) == pytest.approx(20, rel=0.03)


def test_an_exponential_length_has_its_mean_and_nothing_above_its_cap():
    assert statistics.fmean(drawn({"kind": "exponential", "mean": 128})) == pytest.approx(128, rel=0.05)
    capped = drawn({"kind": "exponential", "mean": 128, "max": 32})
    assert max(capped) == 32
    assert capped.count(32) / MANY == pytest.approx(0.7788, abs=0.03)  # exp(-32 / 128)


def test_a_lognormal_length_has_its_median_and_a_heavy_tail():
    values = sorted(drawn({"kind": "lognormal", "median": 100, "sigma": 1}))
    assert values[MANY // 2] == pytest.approx(100, rel=0.1)
    assert values[int(MANY * 0.975)] == pytest.approx(100 * 2.718**1.96, rel=0.2)
    assert max(drawn({"kind": "lognormal", "median": 100, "sigma": 1, "max": 300})) == 300


def test_tokens_are_whole_and_at_least_one():
    tiny = distribution({"kind": "exponential", "mean": 0.1})
    tokens = [draw_tokens(tiny, random.Random(seed)) for seed in range(50)]
    assert {type(number) for number in tokens} == {int}
    assert min(tokens) == 1


def test_the_seed_decides():
    kind = {"kind": "exponential", "mean": 10}
    assert drawn(kind, seed=1) == drawn(kind, seed=1) != drawn(kind, seed=2)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        True,
        "long",
        {"mean": 3},
        {"kind": "normal", "mean": 3},
        {"kind": "exponential"},
        {"kind": "exponential", "mean": 0},
        {"kind": "exponential", "mean": 3, "cap": 4},
        {"kind": "uniform", "min": 5, "max": 4},
        {"kind": "lognormal", "median": 3, "sigma": float("nan")},
    ],
)
def test_what_is_no_distribution_is_refused(value):
    with pytest.raises(ValidationError):
        distribution(value)
