"""A tiny random model with a tokenizer, in a folder as from the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_llama import save_tiny_llama


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))
