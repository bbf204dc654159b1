from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.job import MAX_SEED, JobKey
from headway.engine.rng import philox4x32, stream_key, uniforms

KNOWN_ANSWERS = [
    # counter, key, words: the vectors that come with Random123, the authors' own library (kat_vectors).
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], dtype=np.uint64)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, answer: str) -> None:
    assert (philox4x32(words(counter)[:, None], words(key)[:, None])[:, 0] == words(answer)).all()


def test_many_counters_at_once_give_what_each_gives_alone() -> None:
    counters, keys, answers = (
        np.stack([words(text) for text in column], axis=1) for column in zip(*KNOWN_ANSWERS, strict=True)
    )
    assert (philox4x32(counters, keys) == answers).all()


@given(st.lists(st.tuples(st.integers(0, MAX_SEED), st.integers(0, 2**40)), min_size=1, max_size=20))
def test_a_number_depends_on_its_key_and_position_only(draws: list[tuple[int, int]]) -> None:
    together = uniforms([key for key, _ in draws], [position for _, position in draws])
    alone = [uniforms([key], [position])[0] for key, position in draws]
    assert together.tolist() == alone


def test_the_numbers_are_uniform_and_below_one() -> None:
    numbers = uniforms([7] * 100_000, list(range(100_000)))
    counts, _ = np.histogram(numbers, bins=64, range=(0.0, 1.0))
    chi_square = ((counts - 100_000 / 64) ** 2 / (100_000 / 64)).sum()
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert chi_square < 103.4  # 0.1 % of fair generators exceed it, with 63 degrees of freedom


def test_a_given_seed_is_the_stream_whatever_the_job_is_called() -> None:
    assert stream_key(5, JobKey("acme", "a")) == stream_key(5, JobKey("other", "b"))


def test_without_a_seed_every_job_has_its_own_stream() -> None:
    keys = [JobKey("acme", "a"), JobKey("acme", "b"), JobKey("acm", "ea"), JobKey("other", "a")]
    assert len({stream_key(None, key) for key in keys}) == len(keys)
    assert stream_key(None, keys[0]) == stream_key(None, JobKey("acme", "a"))
