"""Scales of pages of eight bits: large enough for what a model writes, and the same wherever it is loaded."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.engine import calibration
from headway.engine.calibration import HEADROOM, calibrate, calibration_tokens, scale_for
from headway.engine.config import AutoOrOff, Device, DType, EngineConfig
from headway.engine.load import LoadedModel, load_model
from headway.engine.page_scales import LARGEST, Scales


def load(model: Path, dtype: DType = DType.FLOAT32) -> LoadedModel:
    config = EngineConfig(model=str(model), device=Device.CPU, dtype=dtype, pack_weights=AutoOrOff.OFF)
    return load_model(config, print)


def same(one: list[Scales], other: list[Scales]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a.key, b.key) and torch.equal(a.value, b.value) for a, b in pairs)


def test_every_head_of_every_layer_has_a_scale_of_its_own(tiny_llama: Path) -> None:
    loaded = load(tiny_llama)
    scales = calibrate(loaded, 16)
    assert [(scale.key.shape, scale.value.shape) for scale in scales] == [((2,), (2,))] * 2
    louder = copy.deepcopy(loaded.model)
    with torch.no_grad():
        louder.model.layers[1].self_attn.v_proj.weight[8:] *= 16  # the second head's eight rows
    changed = calibrate(replace(loaded, model=louder), 16)
    assert torch.equal(changed[1].value, scales[1].value * torch.tensor([1.0, 16.0]))
    assert torch.equal(changed[1].key, scales[1].key)
    assert torch.equal(changed[0].value, scales[0].value)


@given(st.floats(1e-12, 1e12))
def test_a_scale_is_a_power_of_two_with_room_above_what_was_seen(largest: float) -> None:
    (scale,) = scale_for(torch.tensor([largest])).tolist()
    assert math.frexp(scale)[0] == 0.5
    assert HEADROOM * largest * 0.999 <= scale * LARGEST <= 2 * HEADROOM * largest * 1.001


def test_a_head_that_writes_nothing_or_no_numbers_has_a_scale_too() -> None:
    assert scale_for(torch.tensor([0.0, torch.inf, torch.nan])).tolist() == [1.0, 1.0, 1.0]


def test_two_workers_of_a_model_find_the_same_scales(tiny_llama: Path) -> None:
    torch.manual_seed(1)
    first = calibrate(load(tiny_llama), 16)
    torch.manual_seed(2)
    assert same(first, calibrate(load(tiny_llama), 16))


@pytest.mark.parametrize("page_size", [1, 16, 128])
def test_pages_of_any_size_give_the_same_scales(tiny_llama: Path, page_size: int) -> None:
    loaded = load(tiny_llama)
    assert same(calibrate(loaded, page_size), calibrate(loaded, 32))


def test_other_roundings_give_the_same_scales(tiny_llama: Path) -> None:
    """As on another device or with other kernels: numbers differ in their last bits."""
    assert same(calibrate(load(tiny_llama), 16), calibrate(load(tiny_llama, DType.FLOAT64), 16))


def test_a_short_model_is_measured_with_short_sequences(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = replace(load(tiny_llama), max_model_len=5)
    assert calibration_tokens(loaded).shape == (calibration.NUM_SEQUENCES, 5)
    assert len(calibrate(loaded, 16)) == 2
