"""How long the engine takes to start: made, compiled, captured. Weights are drawn on the device, not read."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from headway.engine.forward_choice import CAPTURING, COMPILING
from loadtest.gpu.bench import Bench, Stage
from loadtest.gpu.checks import Finding, Item, Part

FIGURES = ("start_seconds", "compile_seconds", "capture_seconds")


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(bench), FIGURES)]


def measure(bench: Bench) -> Iterator[Finding]:
    started = time.monotonic()
    engine = bench.engine
    ended = time.monotonic()
    assert not engine.has_work
    stages = [*bench.stages, Stage("ready", ended)]
    values = (ended - started, seconds_of(COMPILING, stages), seconds_of(CAPTURING, stages))
    yield Finding(_name(bench), dict(zip(FIGURES, values, strict=True)), bench.stages[-1].name)


def seconds_of(name: str, stages: Sequence[Stage]) -> float:
    """From the last stage of this ``name`` to the one after it; NaN if there was none."""
    places = [place for place, stage in enumerate(stages[:-1]) if stage.name == name]
    return stages[places[-1] + 1].began_at - stages[places[-1]].began_at if places else math.nan


def _name(bench: Bench) -> str:
    return f"start of {bench.sizes.model.name}"


PART = Part("start", items, measure, min_seconds=60.0)
