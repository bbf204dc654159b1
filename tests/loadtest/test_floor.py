from __future__ import annotations

import pytest

from loadtest.floor import Floor

FLOOR = Floor(
    read_bytes_per_s=1e9, matrix_flops_per_s=1e9, num_weights=1_000_000, weight_bytes=2_000_000, kv_bytes_per_token=100
)


def test_one_sequence_waits_for_the_weights_and_its_own_context():
    assert FLOOR.decode_step_seconds(1, context_tokens=0) == pytest.approx(0.002)
    assert FLOOR.decode_step_seconds(1, context_tokens=5000) == pytest.approx(0.0025)


def test_many_sequences_wait_for_the_products():
    assert FLOOR.decode_step_seconds(100, context_tokens=0) == pytest.approx(0.2)
