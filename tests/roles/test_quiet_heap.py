"""What the garbage collector is told about the jobs that wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headway.roles.quiet_heap import STEP_JOBS, QuietHeap


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the collector, in order; the real one is left alone."""
    calls: list[str] = []
    names = ("collect", "freeze", "unfreeze")
    fake = SimpleNamespace(**{name: lambda *_, name=name: calls.append(name) for name in names})
    monkeypatch.setattr("headway.roles.quiet_heap.gc", fake)
    return calls


def test_few_jobs_are_left_to_the_collector(calls: list[str]) -> None:
    heap = QuietHeap()
    for num_jobs in (0, 1, STEP_JOBS - 1, 0):
        heap.has(num_jobs)
    heap.forget()
    assert calls == []


def test_jobs_are_set_aside_in_steps(calls: list[str]) -> None:
    heap = QuietHeap()
    for num_jobs in range(0, 3 * STEP_JOBS + 1, 500):
        heap.has(num_jobs)
    assert calls == ["collect", "freeze"] * 3


def test_a_queue_that_is_short_again_is_the_collectors(calls: list[str]) -> None:
    heap = QuietHeap()
    for num_jobs in (STEP_JOBS, STEP_JOBS - 1, STEP_JOBS - 2):
        heap.has(num_jobs)
    assert calls == ["collect", "freeze", "unfreeze"]


def test_what_a_former_leader_held_is_cleared_away(calls: list[str]) -> None:
    heap = QuietHeap()
    heap.has(STEP_JOBS)
    heap.forget()
    heap.forget()
    assert calls == ["collect", "freeze", "unfreeze", "collect"]
