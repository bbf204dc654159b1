"""What is measured for docs/tuning.md, on an engine that answers at once."""

from __future__ import annotations

import json
from collections import Counter

from headway.core.scheduler_config import SchedulerConfig
from loadtest.tuning.knob_study import Effort, all_names, measure, merged, sweeps, workloads
from loadtest.tuning.knobs import Run


class Engine:
    """Remembers what it was asked to measure."""

    def __init__(self) -> None:
        self.asked: list[SchedulerConfig] = []

    def call(self, function, scheduler, requests, goal, seconds) -> Run:
        self.asked.append(scheduler)
        return Run(float(len(self.asked)), 0.1, 0.2, 10)


def test_every_point_can_be_run():
    """Its settings are checked when they are made, and its workload is there."""
    for sweep in sweeps().values():
        assert sweep.workload in workloads()
        for point in sweep.points:
            point.knobs.apply(SchedulerConfig())


def test_points_take_turns_round_by_round():
    engine = Engine()
    *_, last = measure(engine, ["batch", "chunk"], Effort(num_rounds=3))
    sizes = [scheduler.max_num_seqs for scheduler in engine.asked]
    num_points = sum(len(sweeps()[name].points) for name in ("batch", "chunk"))
    assert sizes[:num_points] == sizes[num_points : 2 * num_points]
    assert Counter(len(point["runs"]) for sweep in last.values() for point in sweep["points"]) == {3: num_points}


def test_what_was_measured_by_then_is_told_after_each_sweep():
    told = measure(Engine(), ["batch", "chunk"], Effort(num_rounds=1))
    assert next(told).keys() == {"batch"}
    assert next(told).keys() == {"batch", "chunk"}


def test_measuring_a_part_again_keeps_the_rest():
    before = {"num_rounds": 3, "sweeps": {"batch": "old", "chunk": "old"}, "long_prompt": "old"}
    now = {"num_rounds": 1, "sweeps": {"chunk": "new"}}
    assert merged(before, now) == {
        "num_rounds": 1,
        "sweeps": {"batch": "old", "chunk": "new"},
        "long_prompt": "old",
    }
    assert merged({}, {"sweeps": {}}) == {"sweeps": {}}


def test_the_report_is_json():
    *_, last = measure(Engine(), list(all_names()), Effort(num_rounds=1))
    assert json.loads(json.dumps(last)) == last
