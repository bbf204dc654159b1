"""Where the compiled layers lie, and the child process that makes those that are missing.

A library's name is a hash of all that it depends on: what the layer computes, the model's configuration, the source of
its classes and of this package, the versions of torch and transformers, the CPU and the number of threads. So a second
start finds it without tracing anything, and what does not fit is never found. It appears under its name only when it is
complete.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import nn
from torch.export import ExportedProgram, save

from headway.engine.compiled.build import OPTIONS, PROGRAM
from headway.engine.compiled.layers import DecoderLayer
from headway.engine.native.build import BuildFailedError, find_compiler

CPU_INFO = Path("/proc/cpuinfo")
CPU_LINES = ("model name", "flags", "CPU part", "Features")
ABANDONED_SECONDS = 86400.0
SOURCES = Path(__file__).parent


def library_path(folder: Path, layer: DecoderLayer, circumstances: str) -> Path:
    """Where the library of the layer's kind is or will be. ``circumstances``: what else it depends on."""
    parts = [layer.kind, circumstances, *_sources(layer.module), *_environment()]
    return folder / f"layer-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.pt2"


def _sources(layer: nn.Module) -> list[str]:
    classes = sorted({type(module) for module in layer.modules()}, key=lambda each: each.__qualname__)
    texts = [path.read_text() for path in (*sorted(SOURCES.glob("*.py")), SOURCES.parent / "attention.py")]
    for each in classes:
        try:
            texts.append(inspect.getsource(each))
        except (OSError, TypeError):  # a class without a file
            texts.append(each.__qualname__)
    return texts


def _environment() -> list[str]:
    versions = [torch.__version__, transformers.__version__]
    return [*versions, platform.machine(), *_cpu(), str(torch.get_num_threads()), repr(OPTIONS)]


def _cpu() -> list[str]:
    """Code is compiled for exactly this CPU."""
    if not CPU_INFO.exists():
        return [platform.processor()]
    first = CPU_INFO.read_text().split("\n\n")[0].splitlines()
    return [line for line in first if line.startswith(CPU_LINES)]


@dataclass(slots=True)
class Compilation:
    """A running child, and what it makes."""

    process: subprocess.Popen[bytes]
    folders: list[Path]
    errors: Path

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def finish(self) -> None:
        """Once it has ended: tidy up. Raises ``BuildFailedError`` with its last words."""
        text = self.errors.read_text(errors="replace").strip().splitlines()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        if self.process.returncode != 0:
            raise BuildFailedError(text[-1] if text else f"the compiler's process ended with {self.process.returncode}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def start_compiling(programs: Mapping[Path, Callable[[], ExportedProgram]]) -> Compilation:
    """Have the libraries made at these paths. Raises ``BuildFailedError``, before it asks for a program if there is no
    compiler."""
    compiler = find_compiler()
    folders: list[Path] = []
    try:
        _sweep(next(iter(programs)).parent)
        for path, export in programs.items():
            folders.append(_put(path, export()))
        errors = folders[0] / "errors"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "headway.engine.compiled.build"),
                    *("--parent", str(os.getpid()), "--threads", str(torch.get_num_threads())),
                    *map(str, folders),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={**os.environ, **_child_environment(folders[0], compiler)},
            )
    except OSError as exc:
        raise BuildFailedError(f"cannot compile: {exc}") from exc
    return Compilation(process, folders, errors)


def _put(path: Path, program: ExportedProgram) -> Path:
    """A folder of this process alone, in which the library of that path is made."""
    folder = path.with_suffix(f".{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    program._example_inputs = None  # a layer's weights, which the child does not need
    save(program, folder / PROGRAM)
    return folder


def _sweep(folder: Path) -> None:
    """What processes left that were killed."""
    for left in folder.glob("layer-*/"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _child_environment(folder: Path, compiler: list[str]) -> dict[str, str]:
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if len(compiler) == 1:
        variables["CXX"] = compiler[0]
    return variables
