"""What people mistype on the command lines of the load tests: each gets one sentence that names it, no traceback, and
exit status 2."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from headway.cli import main
from headway.commands.statuses import USAGE

PART = "{prompt: 8, output: 8}"
ONE = f"num_requests: 2\nparts: [{PART}]\n"
WORKLOAD = {"requests": [{"prompt_ids": [1, 2], "out_len": 2}]}


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that needs a model, or minutes, comes too late."""

    def fail(*_: object) -> None:
        pytest.fail("something was started")

    monkeypatch.setattr("loadtest.bench.measure_floor", fail)
    monkeypatch.setattr("loadtest.tuning.tune.open_engine", fail)
    monkeypatch.setattr("loadtest.queue_load.bench.measure", fail)
    monkeypatch.setattr("loadtest.queue_load.bench.measure_core", fail)


def complaint_about(*arguments: str) -> str:
    """The one sentence; the usage that comes before it left out."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == USAGE, said.getvalue()
    return said.getvalue().partition("headway: ")[2]


@pytest.mark.parametrize("number", ["nan", "inf", "0", "-1", "some"])
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("bench", "--arrivals", "poisson"), "--rate"),
        (("bench", "--arrivals", "poisson"), "--load"),
        (("bench", "--target", "nats"), "--timeout"),
        (("tune",), "--tpot"),
        (("tune", "--tpot", "1"), "--ttft"),
        (("tune", "--tpot", "1"), "--share"),
        (("tune", "--tpot", "1"), "--minutes"),
        (("tune", "--tpot", "1"), "--run-seconds"),
        (("bench", "compare", "a.json", "b.json"), "--fail-above"),
        (("top",), "--interval"),
        (("result", "a1"), "--timeout"),
    ],
)
def test_a_number_that_means_nothing_is_refused(command, flag, number):
    assert flag in complaint_about(*command, flag, number)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("bench --num-requests 0 --scenario smoke", "--num-requests"),
        ("bench --runs 0", "--runs"),
        ("bench --concurrency 0 --arrivals closed", "--concurrency"),
        ("bench --arrivals closed", "needs --concurrency"),
        ("bench --rate 1 --load 1 --arrivals poisson", "exclude each other"),
        ("bench --rate 1", "are for --arrivals poisson"),
        ("bench --target nowhere", "--target"),
        ("bench --target openai", "needs --url"),
        ("bench --target openai --url nowhere", "http://HOST:PORT/v1"),
        ("bench --url http://127.0.0.1/v1", "--url is for nothing else"),
        ("bench --slo ttft=soon", "ttft=SECONDS"),
        ("bench --slo ttft=nan", "above 0"),
        ("bench --slo tpot=inf", "above 0"),
        ("bench --slo first=1", "ttft=SECONDS"),
        ("bench --peers engine", "cannot be compared with itself"),
        ("bench --peers vlm", "'vlm' is none of vllm"),
        ("bench --peers engine+page_sise=1", "did you mean --page-size?"),
        ("bench --peers engine+max_num_seqs=none", "--max-num-seqs"),
        ("bench --scenario nowhere", "there is no scenario 'nowhere'"),
        ("bench --scenario nowhere.yaml", "No such file"),
        ("bench --workload nowhere.json", "--workload"),
        ("bench --json nowhere/out.json", "nowhere/out.json"),
        ("bench --html nowhere/out.html", "nowhere/out.html"),
        ("bench --json .", "--json"),
        ("bench --json out --html ./out", "out is asked for twice"),
        ("bench --max-num-seqs 0", "--max-num-seqs"),
        ("bench --policy sjf", "--policy changes nothing of --target engine"),
        ("bench --target static --prefetch 0", "--prefetch changes nothing of --target static"),
        ("bench --peers static,vllm --nats-url nats://x", "--nats-url changes nothing of --target engine"),
        ("bench --target openai --url http://x/v1 --max-num-seqs 4", "changes nothing of --target openai"),
        ("bench --target openai --url http://x/v1 --peers b=http://y/v1 --max-num-seqs 4", "changes nothing"),
        ("bench --target queue --max-num-seqs 4", "--max-num-seqs changes nothing of --target queue"),
        ("bench --target queue --policy sjf", "--policies"),
        ("bench --timeout 5", "--timeout is for --target nats and openai"),
        ("bench --max-nums-seqs 1", "--max-num-seqs"),
        ("bench --target queue --waiting 1", "--waiting"),
        ("bench --target queue --workers few", "--workers"),
        ("bench --target queue --workers 1,0", "--workers"),
        ("bench --target queue --workers 1.5", "--workers"),
        ("bench --target queue --policies lifo", "--policies"),
        ("bench --target queue --parts all", "--parts"),
        ("bench --target queue --served 0", "--served"),
        ("bench --target queue --tenants 0", "--tenants"),
        ("bench --target queue --payload-bytes 0", "--payload-bytes"),
        ("bench --target queue --json nowhere/out.json", "nowhere/out.json"),
        ("bench --target queue --json .", "--json"),
        ("bench --target queue --seed 1", "--seed is not for --target queue"),
        ("bench report", "REPORT.json"),
        ("bench report nowhere.json --html out.html", "nowhere.json: No such file"),
        ("bench report . --html out.html", "REPORT.json"),
        ("bench compare nowhere.json nowhere.json", "nowhere.json: No such file"),
        ("bench compare nowhere.json", "AFTER.json"),
        ("tune", "--tpot"),
        ("tune --tpot 1 --most-seqs 0", "--most-seqs"),
        ("tune --tpot 1 --scenario nowhere", "there is no scenario 'nowhere'"),
        ("tune --tpot 1 --scenario smoke --workload {workload}", "exclude each other"),
        ("tune --tpot 1 --json nowhere/out.json", "nowhere/out.json"),
        ("tune --tpot 1 --values nowhere/out.yaml", "nowhere/out.yaml"),
        ("tune --tpot 1 --plot nowhere/out.svg", "nowhere/out.svg"),
        ("tune --tpot 1 --plot out.gif", "--plot"),
        ("tune --tpot 1 --json out --values out", "out is asked for twice"),
        ("tune --tpot 1 --max-num-batched-tokens 0", "--max-num-batched-tokens"),
        ("top --nats-url nowhere", "--nats-url"),
    ],
)
def test_a_slip_is_named(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "workload.json").write_text(json.dumps(WORKLOAD))
    assert words in complaint_about(*arguments.format(workload="workload.json").split())
    assert [path.name for path in tmp_path.iterdir()] == ["workload.json"], "nothing is left behind"


@pytest.mark.parametrize(
    "arguments",
    [
        "--peers nats+policy=sjf --policy fifo",
        "--target nats --policy sjf --max-num-seqs 4 --timeout 5",
        "--target openai --url http://x/v1 --peers vllm --kv-memory 1GiB",
        "--target queue --prefetch 1",
        "--peers nats --timeout 5",
        "--tenant-weights acme=2",
    ],
)
def test_a_setting_that_any_of_the_systems_uses_may_be_given(arguments):
    """What is wrong with these is something else, which comes later."""
    assert "changes nothing" not in (said := complaint_about("bench", *arguments.split(), "--json", "nowhere/out.json"))
    assert "nowhere/out.json" in said or "vllm" in said


def file_in(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "dictionary"),
        ("[]", "dictionary"),
        ("parts: []", "parts"),
        (ONE + "]", "line 3"),
        (ONE + "\tseed: 1", "line 3"),
        (b"\xff\xfe\x00", "scenario.yaml"),
        (ONE + "sed: 1", "did you mean seed?"),
        (ONE.replace("2", "0"), "num_requests"),
        (ONE.replace("2", "1000000000000"), "num_requests"),
        (ONE.replace("2", "two"), "num_requests"),
        (ONE.replace("num_requests: 2", "seed: 1"), "num_requests is missing"),
        (ONE + "arrivals: {kind: poisson, rate: .nan}", "rate"),
        (ONE + "arrivals: {kind: poisson, rate: 0}", "rate"),
        (ONE + "arrivals: {kind: poisson, rate: 1, load: 1}", "rate or a load"),
        (ONE + "arrivals: poison", "poisson"),
        (ONE + "arrivals: {kind: gamma, rate: 1, cv: 1.0e-200}", "cv"),
        (ONE + "arrivals: {kind: ramp, rate: 1, over_seconds: 1}", "to_rate"),
        (ONE + "arrivals: {kind: closed, clients: 0}", "clients"),
        (ONE + "arrivals: trace", "trace"),
        (ONE + "slo: {ttft_seconds: -1}", "ttft_seconds"),
        (ONE + "slo: {}", "slo: give at least one"),
        (ONE + "vocab_size: 3", "vocab_size"),
        (ONE.replace("prompt: 8", "prompt: -8"), "prompt"),
        (ONE.replace("prompt: 8", "prompt: .nan"), "prompt"),
        (ONE.replace("prompt: 8", "prompt: 1.0e+15"), "part 1: 1e+15 tokens"),
        (ONE.replace("prompt: 8", "prompt: {kind: exponential, mean: 1.0e+300}"), "part 1"),
        (ONE.replace("prompt: 8", "prompt: {kind: lognormal, median: 1, sigma: 1.0e+300}"), "sigma"),
        (ONE.replace("prompt: 8", "prompt: {kind: uniform, min: 9, max: 8}"), "must not be above"),
        (ONE.replace("prompt: 8", "prompt: {kind: normal, mean: 9}"), "lognormal"),
        (ONE.replace("prompt: 8", "prefix_tokens: 1000000000000, prompt: 8"), "prefix_tokens"),
        (ONE.replace("prompt: 8", "tenant: A B, prompt: 8"), "tenant"),
        (ONE.replace("prompt: 8", "priority: 101, prompt: 8"), "priority"),
        (ONE.replace("prompt: 8", "share: 1, count: 1, prompt: 8"), "share or a count"),
        (ONE.replace("prompt: 8", "cancel: {share: 2, after_seconds: 1}, prompt: 8"), "share"),
        (ONE.replace(PART, "{trace: {file: nowhere.csv}}"), "nowhere.csv"),
        (ONE.replace(PART, "{trace: {file: .}}"), "no trace"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "tune --tpot 1"])
def test_a_faulty_scenario_is_named_with_its_field(command, text, words, tmp_path):
    scenario = file_in(tmp_path, "scenario.yaml", text)
    assert words in complaint_about(*command.split(), "--scenario", scenario)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("prompt_tokens,output_tokens\n", "no rows"),
        ("prompt_tokens,output_tokens\n8\n", "line 2: output_tokens"),
        ("prompt_tokens,output_tokens\n8,8\nx,8\n", "line 3: prompt_tokens"),
        ("prompt_tokens,output_tokens\n8,-8\n", "line 2: output_tokens"),
        ("prompt_tokens,output_tokens\n8,99999999999999999999\n", "line 2: output_tokens"),
        ("prompt_tokens,output_tokens,tenant\n8,8,A B\n", "line 2: tenant"),
        ("arrived_at,prompt_tokens,output_tokens\nnan,8,8\n", "line 2: arrived_at"),
        ("arrived_at,prompt_tokens,output_tokens\ninf,8,8\n", "line 2: arrived_at"),
        ("arrived_at,prompt_tokens,output_tokens\nsoon,8,8\n", "line 2: arrived_at"),
        ("prompt,output\n8,8\n", "no column"),
        (b"\xff\xfe\n1,2\n", "trace.csv"),
    ],
)
def test_a_faulty_trace_is_named_with_its_line(text, words, tmp_path):
    file_in(tmp_path, "trace.csv", text)
    scenario = file_in(tmp_path, "scenario.yaml", ONE.replace(PART, "{trace: {file: trace.csv}}"))
    assert words in complaint_about("bench", "--scenario", scenario)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ('{"prompt_tokens": 1e400, "output_tokens": 8}', "line 1: prompt_tokens"),
        ('{"prompt_tokens": 8, "output_tokens": 8}\n{"prompt_tokens": 8}', "line 2: output_tokens"),
        ('{"prompt_tokens": 8, "output_tokens": 8, "timestamp": NaN}', "line 1: timestamp"),
        ('{"prompt_tokens": 8, "output_tokens": 8, "timestamp": 1' + "0" * 400 + "}", "line 1: timestamp"),
        ("[8, 8]", "line 1"),
        ("{", "trace.jsonl"),
    ],
)
def test_a_faulty_trace_of_json_lines_too(rows, words, tmp_path):
    file_in(tmp_path, "trace.jsonl", rows)
    scenario = file_in(tmp_path, "scenario.yaml", ONE.replace(PART, "{trace: {file: trace.jsonl}}"))
    assert words in complaint_about("bench", "--scenario", scenario)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "workload.json"),
        ("[]", "workload.json"),
        ("{}", "'requests' is missing"),
        ('{"requests": []}', "no requests"),
        ('{"requests": 5}', "workload.json"),
        ('{"requests": [5]}', "workload.json"),
        ('{"requests": [{"prompt_ids": []}]}', "'out_len' is missing"),
        ('{"requests": [{"prompt_ids": [], "out_len": 1}]}', "request 1: prompt_ids"),
        ('{"requests": [{"prompt_ids": [1.5], "out_len": 1}]}', "request 1: prompt_ids"),
        ('{"requests": [{"prompt_ids": [1], "out_len": 0}]}', "request 1: out_len"),
        ('{"requests": [{"prompt_ids": [1], "out_len": NaN}]}', "request 1: out_len"),
        ('{"requests": [{"prompt_ids": [1], "out_len": 1, "gap": NaN}]}', "request 1: gap"),
        ("[" * 100_000, "workload.json"),
        (b"\xff", "workload.json"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "tune --tpot 1"])
def test_a_faulty_workload_is_named_with_its_request(command, text, words, tmp_path):
    workload = file_in(tmp_path, "workload.json", text)
    assert words in complaint_about(*command.split(), "--workload", workload)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"5", b'"queue"', b"\xff", b"{", b'{"target": "queue"}'])
def test_what_is_no_report_is_named(text, tmp_path):
    report, page = file_in(tmp_path, "report.json", text), str(tmp_path / "page.html")
    assert "report.json" in complaint_about("bench", "report", report, "--html", page)
    assert "report.json" in complaint_about("bench", "compare", report, report)
