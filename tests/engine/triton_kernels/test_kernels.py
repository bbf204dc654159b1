from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from headway.engine import build
from headway.engine.config import EngineConfig
from headway.engine.triton_kernels import kernels, nucleus, op
from headway.engine.triton_kernels.launch import Chip
from tests.engine.test_attention import Layer, make_batch

GPU = torch.device("cuda", 0)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What would have been registered."""
    kernels._warn.cache_clear()
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        kernels.attention, "register_kernel", lambda *call, is_extended: calls.append((*call, is_extended))
    )
    monkeypatch.setattr(torch.library, "impl", lambda *call: lambda kernel: calls.append((*call, kernel)))
    return calls


def capability(monkeypatch: pytest.MonkeyPatch, number: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: number)


def test_they_serve_cuda_tensors(monkeypatch, registered):
    capability(monkeypatch, (9, 0))
    assert kernels.use_triton_kernels(GPU)
    assert registered == [
        ("cuda", op.paged_attention_triton, True),
        ("headway::settle", "cuda", nucleus.settle_triton),
    ]


@pytest.mark.parametrize("has_kernels", [True, False])
def test_an_engine_on_a_gpu_asks_for_them_and_then_leaves_them_its_rotary_positions(monkeypatch, has_kernels):
    asked, deferred = [], []
    monkeypatch.setattr(build, "use_triton_kernels", lambda device: asked.append(device) or has_kernels)
    monkeypatch.setattr(build, "defer_rotary", deferred.append)
    build._use_kernels(SimpleNamespace(device=GPU, model="the model"), EngineConfig(), print)
    assert asked == [GPU]
    assert deferred == ["the model"] * has_kernels


def test_an_old_gpu_keeps_the_reference_with_a_warning(monkeypatch, registered, caplog):
    capability(monkeypatch, (7, 5))
    with caplog.at_level(logging.WARNING):
        assert not kernels.use_triton_kernels(GPU)
    assert "7.5" in caplog.text
    assert registered == []


def test_without_triton_the_reference_stays_with_a_warning(monkeypatch, registered, caplog):
    capability(monkeypatch, (9, 0))
    monkeypatch.setitem(sys.modules, "headway.engine.triton_kernels.op", None)
    with caplog.at_level(logging.WARNING):
        assert not kernels.use_triton_kernels(GPU)
    assert "triton" in caplog.text
    assert registered == []


def test_a_cpu_engine_loads_none_of_it():
    code = "import sys, headway.engine.build; print([m for m in sys.modules if 'triton_kernels.' in m])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert shown.stdout.strip() == "['headway.engine.triton_kernels.kernels']"


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        (Layer(), torch.float64),
        (Layer(head_dim=288), torch.float32),
        (Layer(value_dim=288), torch.float32),
        (Layer(scale=-0.25), torch.float32),
    ],
    ids=["float64", "wide keys", "wide values", "a negative scale"],
)
def test_what_the_kernels_do_not_take_the_reference_computes(monkeypatch, layer, dtype):
    monkeypatch.setattr(op, "run", lambda *_: pytest.fail("a kernel ran"))
    example = make_batch(layer, [(1, 20), (5, 9)], dtype, "cpu")
    output = op.paged_attention_triton(**example.arguments)
    assert (output.double() - example.expected).abs().max() < 1e-4


def test_a_step_without_tokens_launches_nothing(monkeypatch):
    monkeypatch.setattr(op, "run", lambda *_: pytest.fail("a kernel ran"))
    arguments = make_batch(Layer(), [(1, 20)], torch.float16, "cpu").arguments
    for name in ("query", "key", "value", "slot_mapping"):
        arguments[name] = arguments[name][:0]
    assert op.paged_attention_triton(**arguments).shape == (0, 4, 16)


def test_the_op_runs_the_kernels_for_its_device(monkeypatch):
    ran = []
    monkeypatch.setattr(op, "run", lambda *call: ran.append(call))
    monkeypatch.setattr(op, "chip_of", lambda device: Chip(90, 132))
    example = make_batch(Layer(), [(1, 20)], torch.float16, "cpu")
    output = op.paged_attention_triton(**example.arguments)
    assert ran[0][4] is output
    assert ran[0][5:] == (Chip(90, 132), None, None)
