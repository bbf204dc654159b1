"""Compilers end when the build does, with all that they have started."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.engine.native import build
from headway.engine.native.compilers import BuildFailedError, Compilers

DRIVER = "sleep 600 & echo $! > {file}.part; mv {file}.part {file}; wait"
"""Like a compiler's: the work is done by a process of its own."""
TIMEOUT_SECONDS = 60.0


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_interrupts_a_build_ends_the_compilers_and_their_children(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def interrupted() -> None:
        with ThreadPoolExecutor() as pool, Compilers() as compilers:
            pool.submit(compilers.run, ["sh", "-c", DRIVER.format(file=file)])
            wait_for(file.exists, "the driver to have started its child")
            raise SystemExit(0)

    with pytest.raises(SystemExit):
        interrupted()
    pid = int(file.read_text())
    wait_for(lambda: not is_running(pid), "the child to end")


def test_a_compiler_is_in_no_group_that_the_terminal_speaks_to() -> None:
    with Compilers() as compilers:
        group = compilers.run(["sh", "-c", "ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat"])
    assert int(group) != os.getpgrp()


def test_nothing_is_started_any_more_once_it_is_over() -> None:
    with Compilers() as compilers:
        pass
    with pytest.raises(BuildFailedError, match="interrupted"):
        compilers.run(["true"])


def test_a_failure_is_the_line_that_names_the_error() -> None:
    with Compilers() as compilers, pytest.raises(BuildFailedError, match=r"x\.cpp: error: no such thing"):
        compilers.run(["sh", "-c", "echo note >&2; echo 'x.cpp: error: no such thing' >&2; exit 1"])


def test_what_a_killed_build_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leftover = tmp_path / "build-killed"
    leftover.mkdir()
    (leftover / "op.o").touch()
    monkeypatch.setenv("CXX", "true")  # which makes nothing
    with pytest.raises(BuildFailedError):
        build.find_library(tmp_path, print)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
