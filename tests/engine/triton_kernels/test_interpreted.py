"""Runs the checks of the kernels in Triton's interpreter, each file in a process of its own: whether Triton compiles or
interprets is decided when it is imported. By hand: `TRITON_INTERPRET=1 pytest check_pages.py`, in this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("check_*.py")))
def test_the_kernels_compute_the_op(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short", str(FOLDER / name)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=FOLDER.parents[2], timeout=280)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
