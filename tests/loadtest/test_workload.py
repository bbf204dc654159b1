"""The command, from its arguments to its JSON, on both targets with a tiny model."""

from __future__ import annotations

import json

import pytest

from loadtest.workload import main

SUMMARIES = ("ttft_seconds", "tpot_seconds", "e2e_seconds", "prefill_step_seconds")


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "small.json"
    requests = [{"prompt_ids": list(range(3, 3 + n)), "out_len": n, "gap": 0.1} for n in (4, 6, 9)]
    path.write_text(json.dumps({"requests": requests}))
    return path


@pytest.fixture
def small_engine(monkeypatch, tiny_model):
    monkeypatch.setenv("HEADWAY_MODEL", str(tiny_model))
    monkeypatch.setenv("HEADWAY_KV_MEMORY", "1MiB")


@pytest.mark.usefixtures("small_engine")
@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        (["--target", "engine"], {"engine"}),
        (["--target", "engine", "--arrivals", "poisson", "--rate", "20"], {"engine"}),
        (["--target", "nats"], {"headway", "engine", "nats-server"}),
    ],
    ids=["engine", "engine-poisson", "nats"],
)
def test_a_run_reports_every_documented_key(arguments, processes, workload, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main([*arguments, "--workload", str(workload), "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert (report["num_requests"], report["num_completed"], report["num_output_tokens"]) == (3, 3, 19)
    assert report["output_tokens_per_s"] > 0
    assert all(report[key].keys() >= {"mean", "p50", "p90", "p99"} for key in SUMMARIES)
    assert report["step_seconds"]
    assert report["num_prefill_tokens"] == 19
    assert 0 < report["slot_utilisation"] <= 1
    assert report["num_preemptions"] == 0
    assert report["cpu_seconds"].keys() == processes
    assert report["machine"]["torch"]
    assert "3 of 3 requests, 19 output tokens" in capsys.readouterr().out


def test_poisson_without_a_rate_says_so(workload, capsys):
    assert main(["--arrivals", "poisson", "--workload", str(workload)]) == 2
    assert "rate" in capsys.readouterr().err
