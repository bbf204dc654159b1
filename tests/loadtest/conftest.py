"""A tiny random model with a tokenizer, in a folder as from the hub, and what `headway bench` needs to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from headway.engine.config import EngineConfig
from loadtest.floor import Measured, measure_floor
from tests.tiny_llama import save_tiny_llama


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def measured_once() -> Callable[[EngineConfig], Measured]:
    """Measures the floor, which takes seconds, once for each model and its settings."""
    return cache(measure_floor)


@pytest.fixture(scope="module")
def small_engine(tiny_model: Path, measured_once: Callable[[EngineConfig], Measured]) -> Iterator[None]:
    """What `headway bench` runs in this process is of the tiny model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_MODEL", str(tiny_model))
        patch.setenv("HEADWAY_KV_MEMORY", "1MiB")
        patch.setattr("loadtest.bench.measure_floor", measured_once)
        yield
