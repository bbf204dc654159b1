"""The time there is."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from loadtest.gpu.deadline import Deadline, OutOfTimeError


def test_what_takes_longer_than_there_is_left_is_not_begun():
    now = 100.0
    deadline = Deadline(10, clock=lambda: now)
    deadline.require(9)
    now = 104.0
    assert deadline.left == 6
    with pytest.raises(OutOfTimeError):
        deadline.require(9)


def test_what_is_reserved_is_there_again_afterwards():
    deadline = Deadline(10, clock=lambda: 100.0)
    with deadline.reserved(7):
        assert deadline.left == 3
        with pytest.raises(OutOfTimeError):
            deadline.require(3)
    assert deadline.left == 10


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Others may use the same signal: a test runner, for one."""
    handler, (delay, interval) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (pytest.approx(delay, abs=30), interval)


def test_work_is_broken_off_when_the_time_is_over():
    with pytest.raises(OutOfTimeError), Deadline(0.05).enforced():
        _work_for_ever()


def test_what_takes_every_exception_for_its_own_does_not_take_this_one():
    def stubborn():
        try:
            _work_for_ever()
        except Exception:
            return "went on"

    with pytest.raises(OutOfTimeError), Deadline(0.05).enforced():
        stubborn()


def test_work_that_ends_in_time_is_left_alone():
    with Deadline(60).enforced():
        before = signal.getitimer(signal.ITIMER_REAL)
    assert 59 < before[0] <= 60


def _work_for_ever():
    """Until a minute is over, should nothing break it off."""
    ends_at = time.monotonic() + 60
    while time.monotonic() < ends_at:
        pass
