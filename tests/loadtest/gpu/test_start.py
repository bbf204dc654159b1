"""The time that an engine's start takes."""

from __future__ import annotations

import math

import pytest

from headway.engine.forward_choice import CAPTURING, COMPILING
from loadtest.gpu import start
from loadtest.gpu.bench import Stage
from loadtest.gpu.checks import Verdict
from loadtest.gpu.run import run_parts


def test_a_start_is_timed_and_what_it_lacks_has_no_time(make_bench):
    bench = make_bench()
    (check,) = run_parts(bench, [start.PART], lambda check: None)
    assert check.verdict is Verdict.MEASURED
    assert check.figures["start_seconds"] > 0
    assert math.isnan(check.figures["compile_seconds"])
    assert math.isnan(check.figures["capture_seconds"])
    assert "pages" in check.note


def test_a_stage_lasts_until_the_next():
    stages = [Stage(COMPILING, 10.0), Stage(CAPTURING, 95.0), Stage("captured 3 of 3", 107.5), Stage("ready", 108.0)]
    assert start.seconds_of(COMPILING, stages) == pytest.approx(85.0)
    assert start.seconds_of(CAPTURING, stages) == pytest.approx(12.5)
    assert math.isnan(start.seconds_of("dreaming", stages))
    assert start.seconds_of(COMPILING, [*stages[:2], *stages]) == pytest.approx(85.0)
