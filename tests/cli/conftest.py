"""The command line as people run it: real processes, and one `headway up` that tests share."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from headway.cli import main

HEADWAY = (sys.executable, "-m", "headway")
TIMEOUT_SECONDS = 120.0
READY = "Ctrl-C ends it"
ANY_PORT = "127.0.0.1:0"

Headway = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**variables: str) -> dict[str, str]:
    """Ours without the settings that it may hold."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | variables


@pytest.fixture(scope="session")
def headway() -> Headway:
    """Runs one command to its end."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HEADWAY, *arguments],
            input=stdin,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )

    return run


class Running:
    """A command that goes on until a test ends it."""

    said = ""
    """Its last words."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [*HEADWAY, *arguments],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until(self, words: str) -> str:
        """Everything that it says up to the line with ``words``."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if words in line:
                return said
        raise AssertionError(f"ended with status {self.process.wait()} before it said {words!r}:\n{said}")

    def read_characters(self, count: int) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read(count)

    def end_by(self, number: signal.Signals) -> int:
        """The status."""
        self.process.send_signal(number)
        self.said = self.process.communicate(timeout=TIMEOUT_SECONDS)[0]
        return self.process.returncode

    def children(self) -> set[int]:
        folders = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(pid) for folder in folders for pid in (folder / "children").read_text().split()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def start() -> type[Running]:
    """``with start("up", …) as running``"""
    return Running


@dataclass(frozen=True)
class Up:
    """A running `headway up`."""

    url: str
    said: str
    headway: Headway

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command that talks to it."""
        return self.headway(*arguments, stdin=stdin, HEADWAY_NATS_URL=self.url)


@pytest.fixture(scope="session")
def up_arguments(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[str, ...]]:
    """Free ports, a folder of its own, and a small model that leaves its neighbours some memory."""

    def arguments() -> tuple[str, ...]:
        places = ("--data-folder", str(tmp_path_factory.mktemp("up")), "--nats-port", "0", "--lease-listen", ANY_PORT)
        return ("up", *places, "--kv-memory", "64MiB", "--drain-seconds", "0")

    return arguments


@pytest.fixture(scope="session")
def up(up_arguments: Callable[[], tuple[str, ...]], headway: Headway) -> Iterator[Up]:
    with Running(*up_arguments()) as process:
        said = process.read_until(READY)
        found = re.search(r"NATS at (nats://\S+),", said)
        assert found is not None, said
        yield Up(found[1], said, headway)
        process.end_by(signal.SIGTERM)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: status, stdout, stderr."""
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.out, captured.err

    return run
