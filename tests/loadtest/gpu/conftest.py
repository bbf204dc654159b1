"""A bench on the CPU, so small that every part runs in seconds. It shows that the parts run and count right; its times
mean nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from headway.engine.config import AutoOrOff
from loadtest.gpu.deadline import Deadline
from loadtest.gpu.model import ModelShape

collect_ignore_glob = [] if find_spec("triton") else ["*.py"]

CPU = torch.device("cpu")
TINY = ModelShape(
    name="tiny",
    num_layers=2,
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=48,
    vocab_size=96,
    max_model_len=512,
    dtype=torch.float32,
)


@pytest.fixture(scope="session")
def tiny_shape() -> ModelShape:
    return TINY


@pytest.fixture(scope="session")
def tiny_sizes():
    from loadtest.gpu.bench import Sizes

    return Sizes(
        model=TINY,
        batch_sizes=(1, 3),
        context_len=40,
        num_windows=2,
        steps_per_window=3,
        profiled_batch_sizes=(2,),
        num_profiled_steps=4,
        prompt_lengths=(32, 64),
        num_prompt_tokens=128,
        num_requests=5,
        request_prompt_lens=(3, 12),
        request_output_lens=(2, 6),
        num_rounds=1,
        peer_cached_tokens=1024,
        rival_decodes=(3, 50),
        rival_prompts=(2, 40),
        compiles_rivals=False,
        copy_bytes=2**16,
        matmul_size=32,
        num_processes=0,
    )


@pytest.fixture(scope="session")
def make_bench(tiny_sizes) -> Callable[..., object]:
    """``make_bench(seconds=600, max_steps_in_flight=1, **sizes)``"""
    from loadtest.gpu.bench import Bench, BenchSettings

    def make(seconds: float = 600.0, max_steps_in_flight: int = 1, **sizes: object) -> Bench:
        settings = BenchSettings(CPU, replace(tiny_sizes, **sizes), 2, AutoOrOff.OFF, max_steps_in_flight)
        return Bench(settings, Deadline(seconds))

    return make


@pytest.fixture(scope="session", params=[1, 2], ids=["plain loop", "overlapped loop"])
def any_bench(request, make_bench):
    """Once with each of the engine's loops; tests share its engine, and each leaves it idle."""
    return make_bench(max_steps_in_flight=request.param)


@pytest.fixture(scope="session")
def bench(make_bench):
    """With an engine that all tests of a session share; each leaves it idle."""
    return make_bench()
