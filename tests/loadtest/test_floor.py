from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from headway.engine.config import EngineConfig
from loadtest.errors import BenchInputError
from loadtest.floor import Floor, measure_floor

FLOOR = Floor(
    read_bytes_per_s=1e9, matrix_flops_per_s=1e9, num_weights=1_000_000, weight_bytes=2_000_000, kv_bytes_per_token=100
)


def test_one_sequence_waits_for_the_weights_and_its_own_context():
    assert FLOOR.decode_step_seconds(1, context_tokens=0) == pytest.approx(0.002)
    assert FLOOR.decode_step_seconds(1, context_tokens=5000) == pytest.approx(0.0025)


def test_many_sequences_wait_for_the_products():
    assert FLOOR.decode_step_seconds(100, context_tokens=0) == pytest.approx(0.2)


def test_a_model_that_is_not_there_is_a_wrong_request_and_no_failure(tmp_path: Path):
    with pytest.raises(BenchInputError, match="nowhere"):
        measure_floor(EngineConfig(model=str(tmp_path / "nowhere")))


STAND_IN = f"""#!{sys.executable}
import json, os
print(json.dumps({{"floor": {asdict(FLOOR)}, "model_source": str(os.getsid(0)), "vocab_size": 1}}))
"""


def test_ctrl_c_does_not_reach_who_measures_whose_traceback_nobody_needs(tmp_path: Path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    session = int(measure_floor(EngineConfig()).model_source)
    assert session != os.getsid(0)
