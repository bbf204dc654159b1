"""Puts monotonic times on the wall clock, so that spans of several processes line up."""

from __future__ import annotations

import time

from headway.telemetry.traced import Period


def monotonic_period(start_seconds: float, end_seconds: float) -> Period:
    """Between two CLOCK_MONOTONIC times of this machine. The duration is exact even if the wall clock was set."""
    offset = time.time() - time.monotonic()
    return Period.of_seconds(start_seconds + offset, end_seconds + offset)
