"""Models whose linear layers with one input are merged, as on a GPU, and compiled."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from headway.engine.compiled import CompiledForward, compile_forward
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.forward import EagerForward
from headway.engine.gpu_rewrite import merge_siblings, rewrite_for_gpu
from headway.engine.load import LoadedModel
from headway.engine.merged_linear import LinearPart
from tests.engine import test_compiled
from tests.engine.model_kinds import KINDS, logits, make_model
from tests.engine.test_compiled import all_steps, load, make_caches, num_graphs

fresh_compiler = test_compiled.fresh_compiler
no_way_out = test_compiled.no_way_out


def merged_and_plain(kind: str, dtype: torch.dtype) -> tuple[LoadedModel, LoadedModel]:
    merged, plain = load(kind, dtype), load(kind, dtype)
    merge_siblings(merged.model, print)
    return merged, plain


@pytest.mark.parametrize("kind", KINDS)
def test_siblings_are_merged_and_the_rest_stays_as_it_is(kind: str) -> None:
    plain = make_model(kind, torch.float64)
    merged = copy.deepcopy(plain)
    others = {
        name: module
        for name, module in merged.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] not in KINDS[kind].merged
    }
    merge_siblings(merged, print)
    parts = {name.rpartition(".")[2] for name, part in merged.named_modules() if isinstance(part, LinearPart)}
    assert parts == KINDS[kind].merged
    assert all(merged.get_submodule(name) is module for name, module in others.items())
    torch.testing.assert_close(logits(merged, 7), logits(plain, 7), rtol=1e-11, atol=1e-11)


def test_only_a_gpus_models_are_merged_and_only_if_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    model = make_model("llama", torch.float32)
    rewrite_for_gpu(model, EngineConfig(), print)
    monkeypatch.setattr(type(model), "device", torch.device("cuda"))
    rewrite_for_gpu(model, EngineConfig(pack_weights=AutoOrOff.OFF), print)
    assert not any(isinstance(module, LinearPart) for module in model.modules())
    said: list[str] = []
    monkeypatch.setattr("headway.engine.gpu_rewrite.run_tokens", lambda model, _: logits(model, 2))
    rewrite_for_gpu(model, EngineConfig(), said.append)
    assert said == ["merged 10 linear layers with others"]


@pytest.mark.usefixtures("no_way_out")
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma3"])
def test_merged_layers_are_compiled_once_for_steps_of_all_shapes(kind: str, tmp_path: Path) -> None:
    """What a merged layer remembers within a step must be forgotten between two: the compiler would see it."""
    merged, plain = merged_and_plain(kind, torch.float64)
    cache, plain_cache = make_caches(merged)
    forward, expected = compile_forward(merged, cache, tmp_path, "eager"), EagerForward(plain, plain_cache)
    assert isinstance(forward, CompiledForward)
    for inputs in all_steps():
        torch.testing.assert_close(forward(inputs), expected(inputs))
    assert num_graphs() == 1


def test_the_code_generator_multiplies_once_for_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    merged, plain = merged_and_plain("llama", torch.float32)
    cache, plain_cache = make_caches(merged)
    forward, codes = run_and_get_code(compile_forward, merged, cache, tmp_path / "inductor")
    assert isinstance(forward, CompiledForward)
    inputs = next(all_steps())
    torch.testing.assert_close(forward(inputs), EagerForward(plain, plain_cache)(inputs), atol=1e-4, rtol=1e-4)
    # q with k and v, o, gate with up, down; and the head.
    assert codes[0].count("extern_kernels.mm(") == 4 * len(merged.layers) + 1
