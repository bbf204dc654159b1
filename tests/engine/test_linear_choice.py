from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from headway.core.errors import SettingError
from headway.engine import linear_choice
from headway.engine.int8_linear import Int8Linear
from headway.engine.linear_choice import choose_int8, choose_linear
from headway.engine.native_linear import NativeLinear
from headway.engine.packed_linear import PackedLinear

CPU = torch.device("cpu")


@pytest.fixture
def set_cpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the CPU has, whatever it has; the native kernel is there unless told otherwise."""

    def set_cpu(
        *, has_bfloat16: bool = True, has_amx: bool = False, can_pack: bool = True, kernel: bool = True
    ) -> None:
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_bfloat16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)
        monkeypatch.setattr(linear_choice, "can_pack", lambda dtype, device: can_pack)
        monkeypatch.setattr(linear_choice, "has_kernel", lambda: kernel)
        monkeypatch.setattr(linear_choice, "has_int8_kernel", lambda: kernel)

    return set_cpu


def test_bfloat16_without_amx_takes_the_native_layer(set_cpu: Callable[..., None]) -> None:
    set_cpu()
    assert choose_linear(torch.bfloat16, CPU, lambda: True) is NativeLinear


@pytest.mark.parametrize("cpu", [{"has_amx": True}, {"has_bfloat16": False}])
def test_other_cpus_take_onednn_and_compile_nothing(cpu: dict[str, bool], set_cpu: Callable[..., None]) -> None:
    set_cpu(**cpu)
    assert choose_linear(torch.bfloat16, CPU, lambda: pytest.fail("loaded for nothing")) is PackedLinear


def test_float32_takes_onednn(set_cpu: Callable[..., None]) -> None:
    set_cpu()
    assert choose_linear(torch.float32, CPU, lambda: True) is PackedLinear


def test_without_a_compiler_onednn_serves(set_cpu: Callable[..., None]) -> None:
    set_cpu()
    assert choose_linear(torch.bfloat16, CPU, lambda: False) is PackedLinear


def test_a_loaded_library_without_the_kernel_is_not_enough(set_cpu: Callable[..., None]) -> None:
    """As when somebody's own attention kernel was registered, and ours therefore not loaded."""
    set_cpu(kernel=False)
    assert choose_linear(torch.bfloat16, CPU, lambda: True) is PackedLinear


def test_what_nothing_serves_keeps_its_own_layers(set_cpu: Callable[..., None]) -> None:
    set_cpu(can_pack=False)
    assert choose_linear(torch.float64, CPU, lambda: True) is None


def test_a_gpu_keeps_its_own_layers(set_cpu: Callable[..., None]) -> None:
    set_cpu()
    assert choose_linear(torch.bfloat16, torch.device("cuda"), lambda: True) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("cpu", [{}, {"has_amx": True}, {"has_bfloat16": False}, {"can_pack": False}])
def test_int8_goes_on_every_cpu(cpu: dict[str, bool], dtype: torch.dtype, set_cpu: Callable[..., None]) -> None:
    set_cpu(**cpu)
    assert choose_int8(dtype, CPU, lambda: True) is Int8Linear


@pytest.mark.parametrize(
    ("dtype", "device", "kernel", "way_out"),
    [
        (torch.bfloat16, torch.device("cuda"), True, "set device to cpu"),
        (torch.float16, CPU, True, "not with float16; set dtype"),
        (torch.float64, CPU, True, "not with float64; set dtype"),
        (torch.bfloat16, CPU, False, "install a C\\+\\+ compiler"),
    ],
)
def test_int8_that_cannot_be_had_names_the_setting_and_the_way_out(
    dtype: torch.dtype, device: torch.device, kernel: bool, way_out: str, set_cpu: Callable[..., None]
) -> None:
    set_cpu(kernel=kernel)
    with pytest.raises(SettingError, match=f"quantization = 'int8': .*{way_out}.* or quantization to off") as caught:
        choose_int8(dtype, device, lambda: True)
    assert caught.value.setting == "quantization"
