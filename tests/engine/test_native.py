"""How the native kernel's library comes to be: built once, whole or not at all, and done without where it must be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engine.native import build
from headway.engine.native.build import BuildFailedError, find_library

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler")

USE = """
import logging, sys
from pathlib import Path
import torch
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
from headway.engine.native import build
from headway.engine.native.kernels import use_native_kernels
build.FLAGS = build.FLAGS.replace("-O3", "-O0")
print(use_native_kernels(Path(sys.argv[1]), print), use_native_kernels(Path(sys.argv[1]), print))
"""
"""In a process of its own, since what is loaded stays. Built as for `quick_build`, but with every instruction set."""


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USE, str(folder)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    return output, errors


@pytest.fixture(scope="module")
def quick_build() -> Iterator[None]:
    """A library that nobody loads may be slow and need not have every instruction set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", build.FLAGS.replace("-O3", "-O0"))
        patch.setattr(build, "X86_LEVELS", {})
        yield


@pytest.fixture(scope="module")
def built(quick_build: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a library was made."""
    folder = tmp_path_factory.mktemp("built")
    find_library(folder, print)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """One like that, to do as one likes with."""
    shutil.copytree(built, tmp_path / "folder")
    return tmp_path / "folder"


@needs_compiler
def test_two_processes_that_start_together_build_once(tmp_path: Path) -> None:
    results = [finish(process) for process in [start(tmp_path), start(tmp_path)]]
    assert sum(output.count("compiling") for output, _ in results) == 1
    assert all("True True" in output for output, _ in results)
    assert sorted(path.suffix for path in (tmp_path / "native").iterdir()) == ["", ".sha256", ".so"]


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false", "true"])
def test_without_a_compiler_that_works_the_reference_serves_with_one_warning(tmp_path: Path, compiler: str) -> None:
    output, errors = finish(start(tmp_path, CXX=compiler))
    assert "False False" in output
    assert errors.count("WARNING attention runs in plain torch") == 1
    assert "Install a C++ compiler" in errors


@needs_compiler
def test_a_damaged_library_is_built_again(folder: Path) -> None:
    (library,) = folder.glob("*.so")
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    assert find_library(folder, print) == library
    assert library.stat().st_size == len(whole)


@needs_compiler
def test_a_library_that_is_there_is_used_as_it_is(folder: Path) -> None:
    (library,) = folder.glob("*.so")
    written_at = library.stat().st_mtime_ns
    messages: list[str] = []
    assert find_library(folder, messages.append) == library
    assert (library.stat().st_mtime_ns, messages) == (written_at, [])


@needs_compiler
@pytest.mark.usefixtures("quick_build")
def test_an_image_brings_its_library_and_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "prebuilt")
    library = build.prebuild()
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert find_library(tmp_path / "cache", print) == library


def test_a_folder_that_cannot_be_written_is_a_failed_build(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildFailedError):
        find_library(tmp_path / "file" / "native", print)
