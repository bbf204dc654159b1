"""Which packed layer serves a model's linear layers on this machine: the one place that decides.

bfloat16, AVX-512 with bfloat16 and no AMX    `NativeLinear`: its kernel reads memory faster at few rows
other x86 CPUs, bfloat16 and float32          `PackedLinear`: oneDNN, which uses AMX where there is some
everything else                               the model's own layers

Where int8 weights are asked for, it is `Int8Linear` on every CPU, or an error that says why not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from headway.core.errors import SettingError
from headway.engine.config import Quantization
from headway.engine.int8_linear import Int8Linear, has_int8_kernel
from headway.engine.linears import BuildLinear
from headway.engine.native_linear import NativeLinear, has_kernel
from headway.engine.packed_linear import PackedLinear, can_pack


def choose_linear(dtype: torch.dtype, device: torch.device, load_native: Callable[[], bool]) -> BuildLinear | None:
    """``load_native`` loads the native kernels, or says that there are none; it is called only where they are wanted.
    None: nothing is faster than what the model has."""
    if device.type != "cpu":
        return None
    if dtype == torch.bfloat16 and _suits_native() and load_native() and has_kernel():
        return NativeLinear
    return PackedLinear if can_pack(dtype, device) else None


def choose_int8(dtype: torch.dtype, device: torch.device, load_native: Callable[[], bool]) -> BuildLinear:
    """For ``quantization: int8``. Raises ``SettingError`` where it cannot be had."""
    if device.type != "cpu":
        raise _refusal(f"it is for CPUs, and the model runs on {device}; set device to cpu")
    if dtype not in (torch.bfloat16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        raise _refusal(f"it goes with bfloat16 or float32, not with {name}; set dtype to one of them")
    if not (load_native() and has_int8_kernel()):
        raise _refusal("its kernel is not there; install a C++ compiler (g++ 12, clang 16 or newer)")
    return Int8Linear


def _refusal(reason: str) -> SettingError:
    return SettingError("quantization", Quantization.INT8, f"{reason}, or quantization to off")


def _suits_native() -> bool:
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()
