"""The native kernel of ``headway::paged_attention`` for the CPU: loading it, or saying why it is not used.

The library registers itself for CPU tensors when it is loaded: no Python lies between torch's dispatcher and it, which
would cost more per call than a short decode does. So what is loaded stays for the life of the process.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path

import torch

from headway.engine import attention
from headway.engine.native.build import BuildFailedError, Progress, find_library

logger = logging.getLogger(__name__)


def use_native_kernels(folder: Path, progress: Progress) -> bool:
    """Load the kernel, compiling it into ``folder`` if it must be. Where that fails, one warning, and the op stays what
    it is: the reference. A kernel for the CPU that is registered already stays in use."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(attention.OP, "CPU"):
        return True
    try:
        load_native(find_library(folder / "native", progress))
    except BuildFailedError as exc:
        _warn(str(exc))
        return False
    return True


@cache
def _warn(reason: str) -> None:
    logger.warning(
        "attention runs in plain torch, several times slower: %s. Install a C++ compiler (g++ 12, clang 16 or newer; "
        "CXX names another), or set native_kernels to off to silence this.",
        reason,
    )


@cache
def load_native(library: Path) -> NativeKernels:
    """Once per process and file. Raises ``BuildFailedError`` if it cannot be loaded."""
    try:
        torch.ops.load_library(str(library))
    except OSError as exc:
        raise BuildFailedError(f"{library} cannot be loaded: {exc}") from exc
    return NativeKernels(ctypes.CDLL(str(library)))


class NativeKernels:
    """The loaded library's own functions, for tests and measurements."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.headway_levels.restype = ctypes.c_char_p
        library.headway_use_level.restype = ctypes.c_bool

    @property
    def levels(self) -> list[str]:
        """The instruction sets that it can use here, best first."""
        names: bytes = self._library.headway_levels()
        return names.decode().splitlines()

    def use(self, level: str) -> None:
        if not self._library.headway_use_level(level.encode()):
            raise ValueError(f"{level = } is none of {self.levels}")
