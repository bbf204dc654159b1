"""Where things are kept that are made once: in one place, which is ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.engine.cache_folder import COMPILER_FOLDER, compiler_environment
from headway.engine.config import EngineConfig
from headway.engine.process import child_environment

IMPORTS = "import transformers.modeling_utils"
"""Of an engine's start, what imports torch's compiler."""


@pytest.fixture(autouse=True)
def nobody_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMPILER_FOLDER, raising=False)


def test_an_engine_leaves_nothing_among_the_temporary_files(tmp_path: Path) -> None:
    temporary, cache = tmp_path / "tmp", tmp_path / "cache"
    temporary.mkdir()
    ours = child_environment(EngineConfig(cache_folder=str(cache)))
    subprocess.run([sys.executable, "-c", IMPORTS], env={**os.environ, "TMPDIR": str(temporary), **ours}, check=True)
    assert list(temporary.iterdir()) == []
    assert [path.name for path in cache.iterdir()] == ["inductor"]


def test_the_compilers_folder_stays_where_somebody_has_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_FOLDER, "/elsewhere")
    assert compiler_environment(EngineConfig(cache_folder=str(tmp_path))) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_keeps_no_engine_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert compiler_environment(EngineConfig(cache_folder=str(tmp_path / "file"))) == {}
