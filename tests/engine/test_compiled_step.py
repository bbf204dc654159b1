"""Compiling tiny models takes some seconds each, so one cache of compiled code serves all tests of the file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen3Config,
)

from headway.engine.attention import ATTENTION_NAME
from headway.engine.compiled import step as step_module
from headway.engine.compiled.layer_call import Library
from headway.engine.compiled.layers import find_layers
from headway.engine.compiled.libraries import library_path
from headway.engine.compiled.step import CompiledStep
from headway.engine.config import EngineConfig
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, prepare
from headway.engine.native.build import BuildFailedError
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.step_inputs import StepInputs

NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES = {"vocab_size": 61, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, **NO_TOKENS}
GATED = {**SIZES, "num_hidden_layers": 3, "num_key_value_heads": 2}
SLIDING = {"sliding_window": 6, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}
KINDS: dict[str, tuple[PretrainedConfig, torch.dtype]] = {
    "llama": (LlamaConfig(**GATED), torch.float32),
    "qwen3": (Qwen3Config(**GATED, head_dim=16), torch.float64),
    "gemma3": (Gemma3TextConfig(**GATED | {"num_hidden_layers": 4}, **SLIDING), torch.float32),
    "gpt-neox": (GPTNeoXConfig(**SIZES, num_hidden_layers=3), torch.float64),
}
NUM_LIBRARIES = {"gemma3": 2}
BATCHES = {
    "a decode": [(9, 1)],
    "decodes": [(9, 1), (30, 1), (0, 1), (17, 1)],
    "chunks and decodes": [(0, 13), (9, 1), (16, 20), (3, 1)],
    "one long chunk": [(0, 200)],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


def make_model(config: PretrainedConfig, dtype: torch.dtype) -> LoadedModel:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION_NAME)
    return prepare(model, None, EngineConfig(), print)


def make_cache(loaded: LoadedModel) -> KvCache:
    """Full of noise, the same every time."""
    cache = KvCache(loaded, num_pages=80, page_size=4)
    chance = torch.Generator().manual_seed(4)
    for pages in (*cache.key_pages, *cache.value_pages):
        pages.normal_(generator=chance)
    return cache


def make_inputs(sequences: list[tuple[int, int]], page_size: int = 4) -> StepInputs:
    """Sequences as (tokens before, new tokens)."""
    width = max(-(-(old + new) // page_size) for old, new in sequences)
    table = np.arange(len(sequences) * width, dtype=np.int32).reshape(-1, width)
    positions = np.concatenate([np.arange(old, old + new) for old, new in sequences])
    rows = np.repeat(np.arange(len(sequences)), [new for _, new in sequences])
    ends = np.cumsum([new for _, new in sequences])
    return StepInputs(
        token_ids=positions * 7 % 61,
        positions=positions,
        slot_mapping=table[rows, positions // page_size].astype(np.int64) * page_size + positions % page_size,
        page_table=table,
        query_start=np.concatenate(([0], ends)).astype(np.int32),
        context_lens=np.array([old + new for old, new in sequences], dtype=np.int32),
        sampled_rows=ends - 1,
    )


def wait_for(step: CompiledStep) -> None:
    assert step.is_compiling
    step.wait()
    step.advance()


def make_runner(loaded: LoadedModel, cache: KvCache) -> Runner:
    return Runner(loaded, cache, Sampler(loaded.vocab_size, loaded.device))


@dataclass(frozen=True)
class Compiled:
    """A model whose step is compiled, and the same model eager."""

    name: str
    loaded: LoadedModel
    eager: LoadedModel
    step: CompiledStep


@pytest.fixture(scope="module", params=KINDS)
def compiled(request: pytest.FixtureRequest, folder: Path) -> Iterator[Compiled]:
    loaded, eager = (make_model(*KINDS[request.param]) for _ in range(2))
    step = CompiledStep(loaded, make_cache(loaded), folder)
    step.start(print)
    wait_for(step)
    yield Compiled(request.param, loaded, eager, step)
    step.stop()


@pytest.fixture
def llama() -> LoadedModel:
    return make_model(*KINDS["llama"])


@pytest.mark.parametrize("batch", BATCHES)
def test_compiled_equals_eager_and_writes_the_pages_in_place(compiled: Compiled, batch: str) -> None:
    """Pages are compared as a whole, so a compiled step that wrote to a copy would be found out."""
    assert compiled.step.is_compiled
    inputs = make_inputs(BATCHES[batch])
    caches = make_cache(compiled.loaded), make_cache(compiled.loaded)
    places = [pages.data_ptr() for pages in caches[0].key_pages]
    theirs = make_runner(compiled.loaded, caches[0]).logits(inputs)
    ours = make_runner(compiled.eager, caches[1]).logits(inputs)
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
    for name in ("key_pages", "value_pages"):
        torch.testing.assert_close(getattr(caches[0], name), getattr(caches[1], name), rtol=1e-4, atol=1e-4)
    assert not torch.equal(caches[0].key_pages[0], make_cache(compiled.loaded).key_pages[0])
    assert [pages.data_ptr() for pages in caches[0].key_pages] == places


def test_neither_layers_nor_batches_take_more_compilations(compiled: Compiled) -> None:
    num_libraries = NUM_LIBRARIES.get(compiled.name, 1)
    assert compiled.step.num_compilations == num_libraries < len(compiled.loaded.layers)


def test_a_second_start_is_compiled_at_once(compiled: Compiled, folder: Path) -> None:
    again = CompiledStep(make_model(*KINDS[compiled.name]), make_cache(compiled.loaded), folder)
    again.start(print)
    assert again.is_compiled
    assert again.num_compilations == 0


def test_a_second_engine_may_take_the_same_model(compiled: Compiled, folder: Path) -> None:
    again = CompiledStep(compiled.loaded, make_cache(compiled.loaded), folder)
    again.start(print)
    assert again.is_compiled
    assert again.num_compilations == 0


def test_steps_run_eagerly_until_the_compiler_has_finished(
    llama: LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilation = FakeCompilation()
    monkeypatch.setattr(step_module, "start_compiling", lambda programs: compilation)
    step = CompiledStep(llama, make_cache(llama), folder / "empty")
    step.start(print)
    step.advance()
    assert step.is_compiling
    assert "forward" not in vars(llama.model.model.layers[0])
    compilation.is_running = False
    compilation.error = "no space left on device"
    step.advance()
    assert not step.is_compiling


@dataclass
class FakeCompilation:
    is_running: bool = True
    error: str = ""

    def finish(self) -> None:
        raise BuildFailedError(self.error)


def expect_eager(step: CompiledStep, loaded: LoadedModel, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    """One warning with the reason, and a model that works as before."""
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [reason in warning for warning in warnings] == [True], warnings
    assert not step.is_compiled
    assert not step.is_compiling
    inputs = make_inputs([(0, 5)])
    plain = make_runner(make_model(*KINDS["llama"]), make_cache(loaded)).logits(inputs)
    assert make_runner(loaded, make_cache(loaded)).logits(inputs).shape == plain.shape


def test_without_a_compiler_it_stays_eager(
    llama: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    step = CompiledStep(llama, make_cache(llama), tmp_path / "compiled")
    step.start(print)
    expect_eager(step, llama, caplog, "there is no C++ compiler")


def test_with_a_compiler_that_fails_it_stays_eager(
    llama: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    step = CompiledStep(llama, make_cache(llama), tmp_path)
    step.start(print)
    wait_for(step)
    expect_eager(step, llama, caplog, "compile")
    assert not list(tmp_path.glob("*.pt2"))
    assert not list(tmp_path.glob("*/"))


def test_a_model_that_cannot_be_exported_stays_eager(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Which experts run depends on the values."""
    loaded = make_model(MixtralConfig(**GATED, num_local_experts=4, num_experts_per_tok=2), torch.float64)
    step = CompiledStep(loaded, make_cache(loaded), tmp_path)
    step.start(print)
    expect_eager(step, loaded, caplog, "MixtralDecoderLayer cannot be exported")


def test_a_file_that_is_no_library_leaves_it_eager_and_is_made_again(
    llama: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    step = CompiledStep(llama, make_cache(llama), tmp_path)
    layer = find_layers(llama.model)[0]
    path = library_path(tmp_path, layer, step._settled_by(layer))
    path.write_bytes(b"nothing")
    step.start(print)
    expect_eager(step, llama, caplog, "cannot be loaded")
    assert not path.exists()


class WrongLibrary(Library):
    """One of its layers' results is off by a hundredth."""

    def results(self, tensors: Sequence[Tensor]) -> object:
        return tree_map(lambda tensor: tensor * 1.01, super().results(tensors))


def test_a_layer_that_gives_other_values_is_not_used(
    compiled: Compiled, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_module, "Library", WrongLibrary)
    loaded = make_model(*KINDS[compiled.name])
    step = CompiledStep(loaded, make_cache(loaded), folder)
    step.start(print)
    expect_eager(step, loaded, caplog, "gives other values when it is compiled")
    assert all("forward" not in vars(module) for module in loaded.model.modules())
