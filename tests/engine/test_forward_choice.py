from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headway.engine import forward_choice
from headway.engine.captured.forward import CapturedForward
from headway.engine.captured.recording import DirectRecorder
from headway.engine.config import AutoOrOff, Device, EngineConfig
from headway.engine.forward import EagerForward
from headway.engine.forward_choice import Ways, choose_forward, ways_for
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, load_model

GPU = torch.device("cuda")


@pytest.fixture
def loaded(tiny_llama: Path) -> LoadedModel:
    return load_model(EngineConfig(model=str(tiny_llama), device=Device.CPU), print)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 80 GB and a kernel for attention, as far as anybody asks."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * 10**9))
    monkeypatch.setattr(forward_choice, "has_gpu_kernel", lambda: True)


def test_a_cpu_runs_op_by_op(loaded: LoadedModel) -> None:
    cache = KvCache(loaded, num_pages=8, page_size=4)
    ways = ways_for(loaded.device, EngineConfig())
    assert ways == Ways()
    assert isinstance(choose_forward(loaded, cache, ways, 4, print), EagerForward)


@pytest.mark.usefixtures("a_gpu")
def test_a_gpu_compiles_and_captures_unless_told_otherwise() -> None:
    both = ways_for(GPU, EngineConfig(cache_folder="/cache"))
    assert both.compiler == "inductor"
    assert both.compiler_folder == Path("/cache/inductor")
    assert both.make_recorder is not None
    assert both.captured_bytes == 1_600_000_000
    assert ways_for(GPU, EngineConfig(compiled_steps=AutoOrOff.OFF)).compiler is None
    assert ways_for(GPU, EngineConfig(captured_steps=AutoOrOff.OFF)).make_recorder is None


@pytest.mark.usefixtures("a_gpu")
def test_without_a_kernel_for_attention_nothing_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_choice, "has_gpu_kernel", lambda: False)
    ways = ways_for(GPU, EngineConfig())
    assert ways.make_recorder is None
    assert ways.compiler == "inductor"


def test_compiled_steps_are_captured_and_the_start_says_so(loaded: LoadedModel, tmp_path: Path) -> None:
    messages: list[str] = []
    cache = KvCache(loaded, num_pages=8, page_size=4)
    ways = Ways("eager", tmp_path, DirectRecorder, captured_bytes=1)
    forward = choose_forward(loaded, cache, ways, 4, messages.append)
    assert isinstance(forward, CapturedForward)
    assert messages == ["compiling the model", "capturing decodes", "captured 2 of 2 decodes in 0 MB"]
