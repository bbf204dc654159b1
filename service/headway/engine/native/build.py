"""Makes the native kernels' library: compiled on first use into the cache folder, half a minute, once per machine.

The library is tied to torch only by torch's stable interface for C, so it needs no Python headers and compiles in
seconds. It holds the arithmetic once per instruction set and chooses when it runs: one file serves every CPU of its
kind, and an image may bring it along (``python -m headway.engine.native.build`` puts it beside this module).

A file's name is a hash of all that went into it. It appears under its name only when it is complete, with its own
hash beside it: a file that was damaged later is made again. Processes that start together take turns by a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from headway.engine.native.compilers import BuildFailedError, Compilers

Progress = Callable[[str], None]

SOURCES = Path(__file__).parent
PREBUILT = SOURCES / "prebuilt"
"""Where an image has its library."""
TORCH = Path(torch.__file__).parent
BUILD_PREFIX = "build-"
"""Of the folders in which libraries are made."""

FLAGS = "-std=c++17 -O3 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -w"
X86_LEVELS = {
    "avx512_bf16": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vnni -mfma -mf16c",
    "avx512_vnni": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c",
    "avx512": "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c",
    "avx2": "-mavx2 -mfma -mf16c",
}
"""Flags per instruction set; levels.cpp knows the same names."""
OPS = ("op", "linear_op", "linear_int8_op", "pointwise_op", "threads", "levels")
"""Sources that are compiled once."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """One compilation: of a source, with flags of its own."""

    name: str
    source: Path
    flags: str


def find_library(folder: Path, progress: Progress) -> Path:
    """The library, made now if it is not there. Raises ``BuildFailedError``."""
    prebuilt = PREBUILT / _file_name(compiler="")
    if _is_whole(prebuilt):
        return prebuilt
    compiler = _compiler()
    library = folder / _file_name(_version(compiler))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / "lock"):
            if not _is_whole(library):
                progress("compiling the kernels for the CPU (once, half a minute)")
                _remove_leftovers(folder)
                _build(compiler, library)
    except OSError as exc:
        raise BuildFailedError(f"cannot write to {folder}: {exc}") from exc
    return library


def prebuild() -> Path:
    """The library beside this module, for machines without a compiler. Raises ``BuildFailedError``."""
    library = PREBUILT / _file_name(compiler="")
    PREBUILT.mkdir(exist_ok=True)
    _build(_compiler(), library)
    return library


def _compiler() -> list[str]:
    if command := os.environ.get("CXX"):
        return shlex.split(command)
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return [path]
    raise BuildFailedError("there is no C++ compiler")


def _version(compiler: list[str]) -> str:
    with Compilers() as compilers:
        return compilers.run([*compiler, "--version"])


def _file_name(compiler: str) -> str:
    parts = [path.read_bytes() for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")])]
    parts += [repr((compiler, torch.__version__, platform.machine(), _units())).encode()]
    return f"kernels-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}.so"


def _units() -> list[_Unit]:
    levels = {"portable": ""}
    if platform.machine() in ("x86_64", "AMD64"):
        levels |= X86_LEVELS
    kernels = [
        _Unit(name, Path("kernel.cpp"), f"{flags} -DHEADWAY_KERNELS=kernels_{name}") for name, flags in levels.items()
    ]
    include = f"-I{shlex.quote(str(TORCH / 'include'))}"
    return [*(_Unit(name, Path(f"{name}.cpp"), include) for name in OPS), *kernels]


def _build(compiler: list[str], library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=BUILD_PREFIX) as folder:
        built = Path(folder) / library.name
        with ThreadPoolExecutor(os.cpu_count()) as pool, Compilers() as compilers:  # killed before the pool waits
            objects = list(pool.map(lambda unit: _compile(compilers, compiler, unit, Path(folder)), _units()))
            torch_libraries = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"]
            compilers.run([*compiler, "-shared", "-o", str(built), *objects, *torch_libraries])
        if not built.is_file():
            raise BuildFailedError(f"{compiler[0]} made nothing")
        _digest_file(library).write_text(_digest(built))
        built.replace(library)


def _remove_leftovers(folder: Path) -> None:
    """Of builds that were killed; whoever holds the lock is the only one that builds."""
    for leftover in folder.glob(f"{BUILD_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _compile(compilers: Compilers, compiler: list[str], unit: _Unit, folder: Path) -> str:
    built = str(folder / f"{unit.name}.o")
    compilers.run([*compiler, *shlex.split(f"{FLAGS} {unit.flags}"), "-c", str(SOURCES / unit.source), "-o", built])
    return built


def _is_whole(library: Path) -> bool:
    try:
        return _digest_file(library).read_text() == _digest(library)
    except OSError:
        return False


def _digest(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, also if this process dies
        yield


if __name__ == "__main__":
    print(prebuild())
