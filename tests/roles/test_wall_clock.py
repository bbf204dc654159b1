"""The clock of a leader whose machine's clock is set."""

from __future__ import annotations

from dataclasses import dataclass

from headway.roles.wall_clock import MAX_SLEW, WallClock

HOUR = 3600.0


@dataclass
class Machine:
    """``wall`` may be set; ``uptime`` only grows."""

    wall: float = 1_000_000.0
    uptime: float = 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds

    def clock(self) -> WallClock:
        return WallClock(lambda: self.wall, lambda: self.uptime)


def test_it_shows_what_the_machine_shows() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(10):
        machine.passes(0.25)
        assert clock.now() == machine.wall


def test_time_goes_on_when_the_clock_is_set_back() -> None:
    """Or the lease of a dead worker would not run out before the clock has caught up."""
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    machine.wall -= HOUR
    machine.passes(10)
    assert clock.now() - before == 10 * (1 - MAX_SLEW)


def test_no_lease_runs_out_at_once_when_the_clock_is_set_forward() -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    machine.wall += HOUR
    machine.passes(0.25)
    assert clock.now() - before == 0.25 * (1 + MAX_SLEW)


def test_it_comes_to_show_what_the_machine_shows() -> None:
    for jump in (-60.0, 60.0):
        machine = Machine()
        clock = machine.clock()
        machine.wall += jump
        for _ in range(round(60 / MAX_SLEW) + 1):
            machine.passes(1.0)
            clock.now()
        assert abs(clock.now() - machine.wall) < 1e-6


def test_it_never_goes_back_however_often_it_is_asked() -> None:
    machine = Machine()
    clock = machine.clock()
    shown = []
    for step in range(200):
        machine.wall += (-1) ** step * 7
        machine.passes(0.01 if step % 3 else 0.0)
        shown.append(clock.now())
    assert shown == sorted(shown)
