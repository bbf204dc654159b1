"""What `headway tune` writes is a file for ``helm install -f``."""

import subprocess

import yaml

from loadtest.tuning.knobs import Candidate, Goal, Knobs, Run
from loadtest.tuning.show import helm_values
from loadtest.tuning.tune import Tuned

GOAL = Goal(tpot_seconds=0.05, ttft_seconds=1.5)


def tuned_values(tpot_target=None):
    best = Candidate(Knobs(24, 512, 128, tpot_target), GOAL, [Run(200.0, 0.04, 1.0, 50)])
    return helm_values(Tuned("chat", GOAL, [best], best, True, 60.0, {"cpu": 'a "CPU": 2', "num_cores": 2}, "smollm2"))


def lint(helm_path, chart, file):
    return subprocess.run([helm_path, "lint", "--strict", str(chart), "-f", str(file)], capture_output=True, text=True)


def test_the_chart_takes_them(tool_path, chart, tmp_path):
    file = tmp_path / "tuned.yaml"
    for target in (None, 0.05):
        file.write_text(tuned_values(target))
        answer = lint(tool_path("helm"), chart, file)
        assert answer.returncode == 0, answer.stdout


def test_the_chart_would_refuse_a_setting_that_there_is_not(tool_path, chart, tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text(tuned_values().replace("max_num_seqs", "max_num_sequences"))
    assert lint(tool_path("helm"), chart, file).returncode != 0


def test_the_worker_gets_them(render):
    rendered = render(models=[{"name": "a", "model": "m"}], **yaml.safe_load(tuned_values(0.05)))
    scheduler = rendered.settings("headway-worker-a")["scheduler"]
    assert scheduler == {
        "max_num_seqs": 24,
        "max_num_batched_tokens": 512,
        "max_prefill_chunk": 128,
        "tpot_target": 0.05,
    }
