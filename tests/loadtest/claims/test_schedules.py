"""Static against continuous batching, on few jobs."""

from __future__ import annotations

from loadtest.claims.schedules import schedule_claim, to_markdown

CLAIM = schedule_claim(batch=8, cap=512, seeds=(1, 2, 3), num_jobs=200)


def test_the_schedule_gives_about_what_the_lengths_allow_and_not_more():
    assert 0.8 * CLAIM.ideal < CLAIM.same_batch.min <= CLAIM.same_batch.median <= CLAIM.same_batch.max
    assert CLAIM.same_batch.median < 1.05 * CLAIM.ideal


def test_static_batches_waste_what_continuous_ones_fill():
    assert CLAIM.busy_static.max < 0.55
    assert CLAIM.busy_continuous.min > 0.9


def test_pages_hold_more_sequences_than_reservations_for_the_longest_output():
    assert CLAIM.sequences_that_fit.min > 1.2
    assert CLAIM.same_memory.median > CLAIM.same_batch.median


def test_each_claim_is_a_row():
    head, rule, row = to_markdown([CLAIM]).splitlines()
    assert head.count("|") == rule.count("|") == row.count("|")
    assert row.startswith(f"| 8 | 512 | {CLAIM.ideal:.2f} |")
