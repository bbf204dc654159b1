"""Which packed layer serves a model's linear layers on this machine: the one place that decides.

bfloat16, AVX-512 with bfloat16 and no AMX    `NativeLinear`: its kernel reads memory faster at few rows
other x86 CPUs, bfloat16 and float32          `PackedLinear`: oneDNN, which uses AMX where there is some
everything else                               the model's own layers
"""

from __future__ import annotations

from collections.abc import Callable

import torch

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


def _suits_native() -> bool:
    return torch.cpu._is_avx512_bf16_supported() and not torch.cpu._is_amx_tile_supported()
