"""The arithmetic, with made-up GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import SettingError
from headway.engine import page_memory
from headway.engine.config import EngineConfig
from headway.engine.page_memory import MIN_MARGIN_BYTES, DeviceUse, device_memory, host_memory

GIB = 1024**3
H100 = DeviceUse(total=80 * GIB, others=GIB // 2, weights=15 * GIB, step=2 * GIB, outside=GIB // 2)
"""Llama 3 8B, about."""


def bytes_for(use: DeviceUse, fraction: float) -> int:
    return device_memory(use, fraction).num_bytes


def way_out(use: DeviceUse, fraction: float) -> str:
    with pytest.raises(SettingError) as caught:
        device_memory(use, fraction)
    assert (caught.value.setting, caught.value.value) == ("memory_fraction", fraction)
    return caught.value.fix


def test_pages_get_what_the_rest_leaves_of_the_share() -> None:
    margin = int(0.02 * 80 * GIB + 0.1 * 2 * GIB) + MIN_MARGIN_BYTES
    assert bytes_for(H100, 0.9) == int(0.9 * 80 * GIB) - 15 * GIB - 2 * GIB - GIB // 2 - margin


def test_a_share_is_of_the_whole_device_whatever_others_have_of_it() -> None:
    assert bytes_for(replace(H100, others=38 * GIB), 0.45) == bytes_for(H100, 0.45)


def test_nobody_gets_what_others_have_already() -> None:
    crowded = replace(H100, others=50 * GIB)
    assert bytes_for(crowded, 0.9) == 30 * GIB - crowded.taken < bytes_for(H100, 0.9)


@given(
    total=st.integers(GIB, 200 * GIB),
    shares=st.lists(st.floats(0, 0.4), min_size=4, max_size=4),
    fraction=st.floats(0.01, 1.0),
)
def test_there_is_always_a_margin_and_never_more_than_the_share(
    total: int, shares: list[float], fraction: float
) -> None:
    use = DeviceUse(total, *(int(total * share) for share in shares))
    try:
        num_bytes = bytes_for(use, fraction)
    except SettingError:
        assert min(total * fraction, use.free) <= use.taken + 1
        return
    assert num_bytes + use.taken <= min(total * fraction, total - use.others)
    assert use.taken - use.weights - use.step - use.outside >= 0.02 * total + MIN_MARGIN_BYTES - 1


def test_too_small_a_share_is_told_what_share_would_do() -> None:
    fix = way_out(H100, 0.2)
    assert "use more than 0.25" in fix
    assert "weights 16.11 GB" in fix
    assert "max_num_batched_tokens" in fix
    assert bytes_for(H100, 0.26) > 0


def test_a_model_that_is_too_large_for_the_gpu_is_told_so() -> None:
    fix = way_out(replace(H100, weights=79 * GIB), 1.0)
    assert "a smaller model or more GPUs" in fix
    assert "use more than" not in fix


def test_a_gpu_that_others_have_filled_is_told_so() -> None:
    fix = way_out(replace(H100, others=70 * GIB), 0.9)
    assert "nobody else has taken; stop what else runs on this GPU" in fix


def test_a_host_gives_a_quarter_of_what_is_free_and_not_more_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, expected in ((GIB, GIB // 4), (100 * GIB, 4 * GIB)):
        monkeypatch.setattr(page_memory, "available_host_bytes", lambda free=free: free)
        assert host_memory(EngineConfig()).num_bytes == expected
