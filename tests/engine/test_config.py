from __future__ import annotations

from typing import Any

import pytest

from headway.core.errors import SettingError
from headway.engine.config import AutoOrOff, EngineConfig, Quantization, parse_memory


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500000", 1_500_000),
        ("2GiB", 2 * 1024**3),
        ("2Gi", 2 * 1024**3),
        ("2 GB", 2_000_000_000),
        ("512mib", 512 * 1024**2),
        ("1.5K", 1500),
        ("7B", 7),
    ],
)
def test_memory_is_written_in_bytes_or_with_a_unit(text: str, expected: int) -> None:
    assert parse_memory("kv_memory", text) == expected


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("kv_memory", "much"),
        ("kv_memory", "-1"),
        ("served_model", "My Model"),
        ("memory_fraction", 0.0),
        ("memory_fraction", 1.1),
        ("page_size", 0),
        ("max_model_len", 1),
        ("num_threads", 0),
        ("device", "tpu"),
        ("dtype", "int8"),
        ("pack_weights", "on"),
        ("native_kernels", "on"),
        ("quantization", "int4"),
        ("tensor_parallel_size", 0),
        ("kv_cache_dtype", "fp4"),
    ],
)
def test_a_setting_that_cannot_hold_is_named(setting: str, value: Any) -> None:
    with pytest.raises(SettingError) as caught:
        EngineConfig(**{setting: value})
    assert caught.value.setting == setting


def test_int8_weights_are_not_divided() -> None:
    with pytest.raises(SettingError, match="or quantization off") as caught:
        EngineConfig(quantization=Quantization.INT8, tensor_parallel_size=2)
    assert caught.value.setting == "tensor_parallel_size"


@pytest.mark.parametrize("setting", ["pack_weights", "native_kernels"])
def test_what_int8_needs_cannot_be_off_with_it(setting: str) -> None:
    with pytest.raises(SettingError, match="or quantization off") as caught:
        EngineConfig(quantization=Quantization.INT8, **{setting: AutoOrOff.OFF})
    assert caught.value.setting == setting
