"""What holds for a role as a process."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("role", ["worker", "queue", "local"])
def test_the_process_of_a_role_loads_no_torch(role: str) -> None:
    code = f"import sys, headway.roles.{role}; print(sorted({{'torch', 'transformers', 'numpy'}} & set(sys.modules)))"
    python = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert python.stdout.strip() == "[]"
