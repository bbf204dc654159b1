"""An engine in a process of its own: how it comes and goes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import EngineConfig
from loadtest.child import Child
from loadtest.targets import engine_child
from loadtest.targets.engine_child import open_engine


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """All that are started."""
    started: list[Child] = []

    class Kept(Child):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(engine_child, "Child", Kept)
    return started


def test_an_interrupted_start_does_not_wait_until_the_model_is_loaded(tiny_model: Path, children: list[Child]):
    def interrupt(stage: str) -> None:
        assert stage == "importing torch and transformers"
        raise KeyboardInterrupt

    engine = EngineConfig(model=str(tiny_model), kv_memory="1MiB")
    with pytest.raises(KeyboardInterrupt), open_engine(engine, SchedulerConfig(), interrupt):
        pass
    (child,) = children
    assert child._process.returncode == -signal.SIGKILL
