"""What torch tells of the host's waits, on a GPU that is made up."""

from __future__ import annotations

import warnings

import pytest
import torch

from loadtest.gpu import waits
from loadtest.gpu.checks import Verdict
from loadtest.gpu.run import run_parts

GPU = torch.device("cuda")


@pytest.fixture
def modes(monkeypatch):
    """That torch was told, the last one first."""
    told: list[int | str] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: told[0])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: told.insert(0, mode))
    return told


def wait():
    warnings.warn("called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:1)", stacklevel=1)


def test_every_wait_is_counted_and_nothing_else(modes):
    with waits.waits(GPU) as places:
        assert modes[0] == "warn"
        for _ in range(3):
            wait()
        warnings.warn("Synchronization debug mode does not yet detect all synchronizing operations", stacklevel=1)
    assert len(places) == 3
    assert len(set(places)) == 1
    assert places[0].startswith("test_waits.py:")
    assert modes[0] == 0


def test_it_listens_no_longer_when_the_steps_fail(modes):
    listening = waits.waits(GPU)
    places = listening.__enter__()
    wait()
    assert not listening.__exit__(ValueError, ValueError("a step"), None)
    assert (len(places), modes[0]) == (1, 0)


def test_steps_of_every_kind_are_watched(any_bench):
    checks = run_parts(any_bench, [waits.PART], lambda check: None)
    assert [check.verdict for check in checks] == [Verdict.PASSED] * len(waits.KINDS)
    assert all(check.figures["num_steps"] >= waits.NUM_TOKENS for check in checks)
    assert not any_bench.engine.has_work


def test_a_kind_that_waits_fails_and_says_where(any_bench, monkeypatch):
    monkeypatch.setattr(waits, "_places", lambda caught: ["sampling.py:7", "drawing.py:1", "sampling.py:7"])
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    monkeypatch.setattr(any_bench, "device", GPU)
    monkeypatch.setattr(any_bench, "release", lambda: None)
    check, *_ = run_parts(any_bench, [waits.PART], lambda check: None)
    assert check.verdict is Verdict.FAILED
    assert check.figures["num_waits"] == 3
    assert check.note == "sampling.py:7: 2; drawing.py:1: 1"
