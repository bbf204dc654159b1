"""A whole run on a real engine with a tiny model, on a clock that only sleeping moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.build import build_engine
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from loadtest.recording import Recording
from loadtest.targets.engine_target import run_on_engine
from loadtest.workloads.requests import Request

REQUESTS = tuple(Request(tuple(range(10, 10 + n)), num_output_tokens=n, gap=1.0) for n in (3, 5, 8, 13))


@dataclass
class Clock:
    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def engine(tiny_model: Path) -> Engine:
    scheduling = SchedulerConfig(max_num_seqs=4, prefix_sharing=PrefixSharing.OFF)
    return build_engine(EngineConfig(model=str(tiny_model), kv_memory="1MiB"), scheduling, print)


def run(engine: Engine, due_at: list[float], clock: Clock) -> Recording:
    return run_on_engine(engine, REQUESTS, due_at, clock=clock, sleep=clock.sleep)


def test_a_burst_is_one_batch_and_every_request_gets_exactly_its_tokens(engine):
    recording = run(engine, [0.0] * 4, Clock())
    assert [line.num_tokens for line in recording.timelines] == [3, 5, 8, 13]
    assert len(recording.completed) == 4
    assert len(recording.steps.steps) == 13
    assert recording.steps.slot_utilisation == pytest.approx((3 + 5 + 8 + 13) / (4 * 13))
    assert recording.cpu_seconds.keys() == {"engine"}


def test_requests_wait_until_they_are_due(engine):
    clock = Clock()
    recording = run(engine, [1.0, 4.0, 9.0, 16.0], clock)
    assert clock.pauses == [1.0, 3.0, 5.0, 7.0]
    assert [line.first_token_at for line in recording.timelines] == [1.0, 4.0, 9.0, 16.0]
    assert [line.ttft_seconds for line in recording.timelines] == [0.0] * 4


def test_a_second_run_on_the_same_engine_counts_from_zero(engine):
    first, second = run(engine, [0.0] * 4, Clock()), run(engine, [0.0] * 4, Clock())
    assert second.steps.slot_utilisation == first.steps.slot_utilisation
    assert len(second.steps.steps) == len(first.steps.steps)
