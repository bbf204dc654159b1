"""What people and machines get to see of a search."""

from __future__ import annotations

import json

import yaml
from click.testing import CliRunner

from headway.cli import COMMANDS
from headway.commands.worker import command as worker
from headway.core.scheduler_config import SchedulerConfig
from loadtest.tuning.knobs import Candidate, Goal, Knobs, Run
from loadtest.tuning.picture import write_picture
from loadtest.tuning.show import flags, helm_values, to_json, to_text
from loadtest.tuning.tune import Tuned

GOAL = Goal(tpot_seconds=0.1, ttft_seconds=2.0)
MACHINE = {"cpu": "a CPU", "num_cores": 2}


def a_candidate(num_seqs: int, tokens_per_s: float, tpot: float, target: float | None = None) -> Candidate:
    return Candidate(Knobs(num_seqs, 512, 128, target), GOAL, [Run(tokens_per_s, tpot, 0.5, num_requests=10)])


KEPT = [a_candidate(8, 100.0, 0.05), a_candidate(16, 150.0, 0.09, target=0.1)]
MISSED = a_candidate(32, 180.0, 0.2)


def tuned(*candidates: Candidate, best: Candidate | None = None, is_complete: bool = True) -> Tuned:
    return Tuned("chat", GOAL, candidates, best, is_complete, 90.0, MACHINE, "smollm2")


def test_the_table_says_what_is_best_what_missed_and_what_nothing_beats():
    text = to_text(tuned(*KEPT, MISSED, best=KEPT[1]))
    rows = {line.split()[0]: line for line in text.splitlines() if line[:2] == "  " and line.split()[0].isdigit()}
    assert "best" in rows["16"]
    assert "missed" not in rows["16"]
    assert "missed" in rows["32"]
    assert all("frontier" in rows[number] for number in ("8", "16", "32"))
    assert "TPOT ≤ 0.1 s and TTFT ≤ 2 s for 90% of the requests" in text


def test_the_plot_has_a_mark_for_each_candidate_and_the_goal_between_kept_and_missed():
    plot = [line for line in to_text(tuned(*KEPT, MISSED, best=KEPT[1])).splitlines() if "│" in line]
    marks = {mark: line.index(mark) for line in plot for mark in "◆●○┊" if mark in line}
    assert marks["●"] < marks["◆"] < marks["┊"] < marks["○"]


def test_in_the_plot_more_throughput_is_higher():
    plot = [line for line in to_text(tuned(*KEPT, MISSED, best=KEPT[1])).splitlines() if "│" in line]
    rows = {mark: number for number, line in enumerate(plot) for mark in "◆●○" if mark in line}
    assert rows["○"] < rows["◆"] < rows["●"], "180, 150 and 100 tokens per second"
    assert plot[0].split()[0] == "180"


def test_an_interrupted_search_says_so():
    assert "not at its end" in to_text(tuned(*KEPT, best=KEPT[1], is_complete=False))


def test_where_nothing_keeps_the_goal_the_nearest_is_named():
    assert "nothing keeps TPOT" in to_text(tuned(MISSED, best=MISSED))


def test_nothing_measured_is_no_result():
    assert "nothing was measured" in to_text(tuned())


def test_the_values_are_the_best_candidates_settings():
    values = yaml.safe_load(helm_values(tuned(*KEPT, best=KEPT[1])))
    scheduler = values["workerDefaults"]["settings"]["scheduler"]
    assert scheduler == {
        "max_num_seqs": 16,
        "max_num_batched_tokens": 512,
        "max_prefill_chunk": 128,
        "tpot_target": 0.1,
    }
    SchedulerConfig(**scheduler)


def test_a_worker_takes_the_flags():
    options = {option for parameter in worker.params for option in parameter.opts}
    for flag in flags(KEPT[1]).split()[::2]:
        assert flag in options


def test_the_json_holds_every_run():
    report = json.loads(json.dumps(to_json(tuned(*KEPT, MISSED, best=KEPT[1]))))
    assert [len(candidate["runs"]) for candidate in report["candidates"]] == [1, 1, 1]
    assert report["best"]["settings"]["max_num_seqs"] == 16
    assert report["goal"] == {"tpot_seconds": 0.1, "ttft_seconds": 2.0, "share": 0.9}


def test_the_picture_is_drawn_as_its_name_says(tmp_path):
    for name in ("front.svg", "front.png"):
        write_picture(tuned(*KEPT, MISSED, best=KEPT[1]), tmp_path / name)
    assert "</svg>" in (tmp_path / "front.svg").read_text()
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_says_what_it_needs():
    from headway.commands.tune import command

    assert "tune" in COMMANDS
    answer = CliRunner().invoke(command, [])
    assert answer.exit_code == 2
    assert "--tpot" in answer.output
