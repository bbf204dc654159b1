"""Models: the default one, loaded once per session and type (the first run ever converts it into the user's cache
folder), a tiny random one in a folder, and one with the default's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from headway.engine import attention, build
from headway.engine.attention import ATTENTION_NAME
from headway.engine.cache_folder import cache_folder
from headway.engine.config import Device, DType, EngineConfig
from headway.engine.load import LoadedModel, load_model, prepare
from headway.engine.native.build import BuildFailedError, find_library
from headway.engine.native.kernels import NativeKernels, load_native, use_native_kernels
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.tokenizer import Tokenizer
from tests.tiny_llama import save_tiny_llama


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """SmolLM2-135M-Instruct in the type that this CPU is fast with, as users get it."""
    return load_model(EngineConfig(device=Device.CPU), print)


@pytest.fixture(scope="session")
def smollm2_float32() -> LoadedModel:
    """The same weights, computed exactly enough to compare tokens with a reference."""
    return load_model(EngineConfig(device=Device.CPU, dtype=DType.FLOAT32), print)


@pytest.fixture(params=["reference", "native"])
def attention_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs once with each implementation of the op on the CPU."""
    if request.param == "reference":
        monkeypatch.setattr(attention, "paged_attention", paged_attention_reference)
    elif not use_native_kernels(cache_folder(EngineConfig()), print):
        pytest.skip("there is no compiler")


@pytest.fixture(params=[1, 2], ids=["plain", "overlapped"])
def both_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs once with one step in flight and once with two, as on a GPU."""
    monkeypatch.setattr(build, "_max_steps_in_flight", lambda device, config: request.param)


@pytest.fixture(scope="module")
def one_tokenizer() -> Iterator[None]:
    """Engines cost little to build: they share a tokenizer, and so must not work at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "Tokenizer", cache(Tokenizer))
        yield


@pytest.fixture(scope="module")
def many_engines(one_tokenizer: None) -> Iterator[None]:
    """And attention is the op in plain torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "paged_attention", paged_attention_reference)
        yield


@pytest.fixture(scope="session")
def kernels() -> NativeKernels:
    try:
        return load_native(find_library(cache_folder(EngineConfig()) / "native", print))
    except BuildFailedError as exc:
        pytest.skip(str(exc))


@pytest.fixture(params=["avx512_bf16", "avx512_vnni", "avx512", "avx2", "portable"])
def level(request: pytest.FixtureRequest, kernels: NativeKernels) -> Iterator[str]:
    """The test runs once with each instruction set that this CPU has."""
    if request.param not in kernels.levels:
        pytest.skip(f"this CPU has no {request.param}")
    kernels.use(request.param)
    yield request.param
    kernels.use(kernels.levels[0])


@pytest.fixture
def several_threads() -> Iterator[None]:
    """Whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_llama(tmp_path: Path) -> Path:
    """A tiny Llama as it would come from the hub: safetensors, in float32."""
    return save_tiny_llama(tmp_path)


@pytest.fixture(scope="session")
def tiny(smollm2: LoadedModel) -> LoadedModel:
    """A random model with the real tokenizer: its output is what tokens can be at their worst."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=smollm2.vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        max_position_embeddings=512,
        eos_token_id=2,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation=ATTENTION_NAME)
    return prepare(model, smollm2.tokenizer, EngineConfig(), print)


@pytest.fixture(scope="session")
def little(smollm2: LoadedModel) -> LoadedModel:
    """A random model of the first tokens of a real tokenizer: bytes, parts of characters, and some words."""
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=2,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation=ATTENTION_NAME)
    return prepare(model, smollm2.tokenizer, EngineConfig(), print)
