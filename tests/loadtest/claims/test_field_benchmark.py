"""The lengths of the field's benchmark."""

from __future__ import annotations

import pytest

from loadtest.claims.field_benchmark import CAPS, field_jobs, ideal_ratio

PUBLISHED = {8: (1.79, 1.98, 2.52, 2.71), 16: (1.92, 2.16, 3.03, 3.40), 32: (1.98, 2.26, 3.44, 4.06)}
"""E[max] / E[mean] by batch, for the four caps, of drawn whole numbers of tokens."""


@pytest.mark.parametrize("batch", PUBLISHED)
def test_the_ideal_ratio_is_the_longest_over_the_mean(batch):
    assert [ideal_ratio(batch, cap) for cap in CAPS] == pytest.approx(PUBLISHED[batch], rel=0.03)


def test_one_row_is_never_longer_than_itself():
    assert ideal_ratio(1, 512) == 1


def test_lengths_stay_under_the_cap_without_piling_up_at_it():
    lengths = [job.num_output_tokens for job in field_jobs(32, seed=1)]
    assert max(lengths) <= 32
    assert min(lengths) >= 1
    assert lengths.count(32) < len(lengths) / 16


def test_the_same_seed_draws_the_same_jobs_and_another_one_others():
    assert field_jobs(128, seed=1) == field_jobs(128, seed=1)
    assert field_jobs(128, seed=1) != field_jobs(128, seed=2)
