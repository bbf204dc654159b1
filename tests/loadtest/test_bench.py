"""The command, from its arguments to its JSON, on both targets and beside a peer, with a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headway.commands.bench import command
from headway.core.job import FinishReason
from loadtest.bench import is_complete, mean_context_tokens, report_text
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.report import build_report
from loadtest.workloads.requests import Request

SUMMARIES = (
    *("ttft_seconds", "tpot_seconds", "e2e_seconds", "inter_token_gap_seconds", "queue_seconds"),
    "prefill_step_seconds",
)
ENGINE = ("--target", "engine")
VARIANT = "engine+max-num-seqs=1"
COMPARED = ("--peers", f"transformers,{VARIANT}", "--runs", "2")


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    path = tmp_path_factory.mktemp("workload") / "small.json"
    requests = [{"prompt_ids": list(range(3, 3 + n)), "out_len": n, "gap": 0.1} for n in (4, 6, 9)]
    path.write_text(json.dumps({"requests": requests}))
    return path


@dataclass(frozen=True)
class Ran:
    """A run that went well."""

    said: str
    report: dict[str, Any]


@pytest.fixture(scope="module")
def ran(small_engine, workload, tmp_path_factory) -> Callable[..., Ran]:
    """What comes of the workload with these arguments. Takes seconds, so the same ones are run once."""
    out = tmp_path_factory.mktemp("ran") / "out.json"

    @cache
    def run(*arguments: str) -> Ran:
        result = bench(*arguments, "--workload", workload, "--json", out)
        assert result.exit_code == 0, result.output
        return Ran(result.output, json.loads(out.read_text()))

    return run


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("arguments", "processes"),
    [
        (ENGINE, {"engine"}),
        ((*ENGINE, "--arrivals", "poisson", "--rate", "20"), {"engine"}),
        (("--target", "static", "--arrivals", "closed", "--concurrency", "2"), {"engine"}),
        (("--target", "nats"), {"client", "nats-server", "queue", "worker", "engine"}),
    ],
    ids=["engine", "engine-poisson", "static-closed", "nats"],
)
def test_a_run_reports_every_documented_key(arguments, processes, ran):
    result = ran(*arguments)
    report = result.report
    assert (report["num_requests"], report["num_completed"], report["num_output_tokens"]) == (3, 3, 19)
    assert report["output_tokens_per_s"] > 0
    assert all(report[key].keys() >= {"mean", "p50", "p90", "p99"} for key in SUMMARIES)
    assert report["num_prefill_tokens"] == 19
    assert 0 < report["slot_utilisation"] <= 1
    assert report["num_preemptions"] == 0
    assert report["cpu_seconds"].keys() == processes
    assert report["machine"]["torch"]
    assert (report["num_cancelled"], report["num_failed"], report["num_lost"]) == (0, 0, 0)
    assert (report["scenario"], report["seed"], report["goodput"]) == (None, None, None)
    assert len(report["requests"]) == 3
    assert all(row["queue_seconds"] >= 0 for row in report["requests"])
    assert len({len(column) for column in report["timeline"].values()}) == 1
    assert sum(report["timeline"]["num_prefill_tokens"]) == 19
    assert report["tenants"]["loadtest"]["num_requests"] == 3
    assert len(report["runs"]) == 1
    assert "3 of 3 requests, 19 output tokens" in result.said
    assert "GB/s" in result.said


def test_the_floor_counts_what_a_step_must_read(ran):
    floor = ran(*ENGINE).report["floor"]
    # Two layers of q and o [32, 32], k and v [16, 32], three of [48, 32], and the head [64, 32]; float32.
    assert floor["num_weights"] == 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32) + 64 * 32
    assert floor["weight_bytes"] == 4 * floor["num_weights"]
    assert floor["kv_bytes_per_token"] == 2 * 2 * 16 * 4
    assert floor["share"].keys() == floor["decode_step_seconds"].keys() != set()
    assert all(0 < share < 1 for share in floor["share"].values())


def test_a_peer_does_the_same_work_in_turns(ran):
    result = ran(*COMPARED)
    report = result.report
    peer = report["peers"]["transformers"]
    assert [run["num_output_tokens"] for run in (*report["runs"], *peer["runs"])] == [19] * 4
    assert all(run["num_completed"] == 3 for run in peer["runs"])
    ratios = [
        our["output_tokens_per_s"] / their["output_tokens_per_s"]
        for our, their in zip(report["runs"], peer["runs"], strict=True)
    ]
    spread = peer["ratios"]["output_tokens_per_s"]
    assert (spread["min"], spread["max"]) == (min(ratios), max(ratios))
    assert "headway / transformers" in result.said


def made_run(*reasons: FinishReason | None) -> dict[str, Any]:
    """Of requests of one token that ended so; None: never."""
    timelines = [Timeline(0.0, 1) for _ in reasons]
    for line, reason in zip(timelines, reasons, strict=True):
        line.has_given_up = reason is FinishReason.CANCELLED
        line.receive(int(reason is FinishReason.LENGTH), 1.0)
        if reason is not None:
            line.end(reason, 1.0)
    return build_report(Recording(timelines, StepLog(), {}))


def test_what_is_missing_in_any_run_is_said_below_the_figures_of_one():
    whole = made_run(FinishReason.LENGTH, FinishReason.LENGTH, FinishReason.CANCELLED)
    short = made_run(FinishReason.LENGTH, None, FinishReason.ERROR)
    rest = {"bursts": [], "floor": None, "facts": {}}
    theirs = {"runs": [whole, short], "ratios": {}}
    report = {**whole, **rest, "runs": [whole, short], "peers": {"vllm": theirs}}
    assert report_text(report).endswith("not all of the work was done: 2 of 4 runs, 4 requests")
    assert not is_complete(report)
    report = {**whole, **rest, "runs": [whole, whole], "peers": {}}
    assert "not all" not in report_text(report)
    assert is_complete(report)


def test_headway_takes_turns_with_itself_under_other_settings(ran):
    report = ran(*COMPARED).report
    peer = report["peers"][VARIANT]
    assert peer["facts"]["settings"] == {"max_num_seqs": "1"}
    assert max(map(int, report["step_seconds"])) == 3
    assert [set(run["step_seconds"]) for run in peer["runs"]] == [{"1"}, {"1"}]


def test_a_load_is_a_share_of_what_each_system_can_take(ran):
    result = ran("--arrivals", "poisson", "--load", "0.5", "--runs", "1", "--peers", "nats")
    report = result.report
    path = report["peers"]["nats"]
    assert report["load"] == 0.5
    assert report["rate"] == pytest.approx(0.5 * 3 / report["bursts"][0]["duration_seconds"])
    assert path["runs"][0]["rate"] == pytest.approx(0.5 * 3 / path["bursts"]["runs"][0]["duration_seconds"])
    assert path["same_rate"]["runs"][0]["rate"] == path["runs"][0]["rate"]
    assert "each at 50% of its own capacity" in result.said
    assert "both at 50% of nats's" in result.said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--arrivals", "poisson", "--rate", "0"], "--rate"),
        (["--rate", "2"], "--arrivals poisson"),
        (["--arrivals", "poisson", "--rate", "2", "--load", "0.5"], "exclude"),
        (["--peers", "sglang"], "sglang"),
        (["--peers", "engine"], "with itself"),
        (["--workload", "nowhere.json"], "nowhere.json"),
        (["--runs", "0"], "--runs"),
        (["--json", "nowhere/out.json"], "nowhere/out.json"),
        (["--json", "/proc/out.json"], "/proc/out.json"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_starts(arguments, complaint, monkeypatch):
    monkeypatch.setattr("loadtest.bench.measure_floor", lambda config: pytest.fail("something was started"))
    result = bench(*arguments)
    assert result.exit_code != 0
    assert complaint in result.output + str(result.exception)


def test_a_peer_that_is_not_installed_is_named_with_its_remedy(workload, monkeypatch, tmp_path):
    monkeypatch.setattr("loadtest.bench.measure_floor", lambda config: pytest.fail("something was started"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = bench("--workload", workload, "--peers", "vllm")
    assert "loadtest.peers.install vllm" in str(result.exception)


def test_the_whole_path_needs_a_server(workload, monkeypatch, tmp_path):
    monkeypatch.setattr("headway.broker.embedded.sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "headway[local]" in str(bench("--workload", workload, "--target", "nats").exception)


def test_the_context_of_a_decode_is_weighed_by_how_many_there_are():
    short, long = Request((1,) * 10, 10, 0.0), Request((1,) * 100, 30, 0.0)
    assert mean_context_tokens([short, long]) == (10 * 15 + 30 * 115) / 40


@pytest.mark.usefixtures("small_engine")
def test_a_variant_whose_settings_do_not_hold_is_refused_before_anything_starts(workload):
    result = bench("--workload", workload, "--peers", "engine+max_num_sqs=1")
    assert result.exit_code != 0
    assert "max-num-seqs" in str(result.exception)
    assert "measuring" not in result.output
