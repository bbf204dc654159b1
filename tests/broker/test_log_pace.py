"""The turns of token records, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from headway.broker.log_pace import RECORDS_PER_SECOND, Pace


class Clock:
    """What the event loop takes for the time. Before it advances, everything runs that is due."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def advance(self, seconds: float) -> None:
        """Then everything runs that has become due."""
        await self._settle()
        self.now += seconds
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock.now)
    return clock


def test_the_pause_grows_with_the_number_of_records_between_its_bounds() -> None:
    pace = Pace(0.02, 0.15)
    assert pace.pause_seconds(1) == 0.02
    assert pace.pause_seconds(20) == 20 / RECORDS_PER_SECOND
    assert pace.pause_seconds(64) == 0.15


@pytest.mark.parametrize("max_seconds", [0.0, 0.05])
def test_a_greatest_pause_below_the_least_keeps_it_from_growing(max_seconds: float) -> None:
    assert Pace(0.1, max_seconds).pause_seconds(1000) == 0.1


async def test_all_that_come_with_one_report_are_written_in_one_turn(clock: Clock) -> None:
    pace, written = Pace(0.1), list[str]()
    for job in ("a", "b", "c"):
        pace.add(partial(written.append, job))
        assert not written
    await clock.advance(0.0)
    assert written == ["a", "b", "c"]


async def test_what_comes_within_the_pause_waits_for_the_first_report_after_it(clock: Clock) -> None:
    pace, written = Pace(0.1), list[str]()
    pace.add(partial(written.append, "first"))
    await clock.advance(0.04)
    pace.add(partial(written.append, "early"))
    await clock.advance(0.07)
    assert written == ["first"]
    pace.add(partial(written.append, "late"))
    await clock.advance(0.0)
    assert written == ["first", "early", "late"]


async def test_nothing_waits_longer_than_a_second_pause_for_a_report(clock: Clock) -> None:
    pace, written = Pace(0.1), list[str]()
    pace.add(partial(written.append, "first"))
    await clock.advance(0.0)
    pace.add(partial(written.append, "held"))
    await clock.advance(0.19)
    assert written == ["first"]
    await clock.advance(0.02)
    assert written == ["first", "held"]


async def test_many_records_make_the_next_pause_longer(clock: Clock) -> None:
    pace, written = Pace(0.02, 1.0), list[str]()
    for _ in range(RECORDS_PER_SECOND // 2):
        pace.add(lambda: None)
    await clock.advance(0.0)
    for seconds, job in ((0.45, "early"), (0.1, "late")):
        await clock.advance(seconds)
        pace.add(partial(written.append, job))
        await clock.advance(0.0)
        assert bool(written) == (job == "late")
    assert written == ["early", "late"]
