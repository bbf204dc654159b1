"""The clients of an OpenAI-compatible server, against a real one over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import pytest
from click.testing import CliRunner

from headway.commands.bench import command
from headway.core.job import FinishReason
from loadtest.errors import BenchError
from loadtest.progress import Progress
from loadtest.recording import Outcome, Recording
from loadtest.targets.openai_target import open_server
from loadtest.targets.server import Server
from loadtest.workloads.plan import ClosedLoop, Plan
from loadtest.workloads.requests import Request
from tests.loadtest.targets.completion_server import Behaviour, CompletionServer, serving

WAIT_SECONDS = 20.0


def request(num_tokens: int = 6, **fields: object) -> Request:
    return Request(tuple(range(100, 105)), num_tokens, **fields)


def run(
    requests: Sequence[Request],
    behaviour: Behaviour | None = None,
    plan: Plan | None = None,
    timeout_seconds: float = WAIT_SECONDS,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Recording, CompletionServer]:
    with serving(behaviour) as server, open_server(Server(server.url), watch, timeout_seconds) as target:
        return target.run(requests, plan or [0.0] * len(requests)), server


def test_every_request_gets_exactly_its_tokens_and_its_times():
    recording, server = run([request(6), request(9)], plan=[0.0, 0.05])
    assert [line.num_tokens for line in recording.timelines] == [6, 9]
    assert len(recording.completed) == 2
    assert recording.errors == {}
    for line in recording.timelines:
        assert line.due_at <= line.sent_at <= line.first_token_at <= line.last_token_at <= line.ended_at
        assert len(line.gaps) == line.num_tokens - 1
        assert line.num_prompt_tokens == 5
        assert line.queue_seconds is None
    (body,) = server.asked(9)
    assert (body["model"], body["temperature"], body["ignore_eos"], body["min_tokens"]) == ("first", 0, True, 9)
    assert recording.cpu_seconds.keys() == {"client"}


def test_the_servers_own_count_is_believed_where_a_piece_is_several_tokens():
    recording, _ = run([request(9)], Behaviour(num_at_once=4))
    (line,) = recording.completed
    assert len(line.gaps) == 2
    recording, _ = run([request(3)], Behaviour(num_at_once=4, takes_extensions=False))
    assert recording.timelines[0].num_tokens == 3


def test_a_token_without_text_is_a_token_where_the_server_counts():
    recording, _ = run([request(6)], Behaviour(text=""))
    assert len(recording.completed[0].gaps) == 5


def test_what_a_server_does_not_take_is_left_out_and_said():
    behaviour = Behaviour(takes_token_ids=False, takes_extensions=False)
    with serving(behaviour) as server, open_server(Server(server.url)) as target:
        recording = target.run([request(2), request(6)], [0.0, 0.0])
    assert "text" in target.facts["prompts"]
    assert "end early" in target.facts["lengths"]
    assert isinstance(server.asked(6)[0]["prompt"], str)
    assert [line.outcome for line in recording.timelines] == [Outcome.COMPLETED, Outcome.FAILED]
    assert recording.timelines[1].finish_reason is FinishReason.STOP


def test_a_cache_of_prefixes_does_not_know_a_prompt_from_an_earlier_run():
    with serving() as server, open_server(Server(server.url)) as target:
        for _ in range(2):
            target.run([request(7)], [0.0])
    first, second = (body["prompt"] for body in server.asked(7))
    assert first[0] != second[0]
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize(
    ("fault", "outcome", "error"),
    [
        ("status", Outcome.FAILED, "HTTP 500: out of memory"),
        ("error", Outcome.FAILED, "error: the engine died"),
        ("drop", Outcome.LOST, "ClientPayloadError"),
        ("end", Outcome.LOST, "the stream was over before the request"),
        ("garbage", Outcome.LOST, "the stream has an event that is no completion"),
    ],
)
def test_a_fault_costs_its_request_alone_and_is_told(fault, outcome, error):
    recording, _ = run([request(6), request(9)], Behaviour(faults={6: fault}))
    assert [line.outcome for line in recording.timelines] == [outcome, Outcome.COMPLETED]
    assert recording.errors == {error: 1}


def test_a_request_without_an_end_is_lost_after_the_timeout():
    recording, _ = run([request(6), request(9)], Behaviour(faults={6: "silent"}), timeout_seconds=0.3)
    assert [line.outcome for line in recording.timelines] == [Outcome.LOST, Outcome.COMPLETED]
    assert recording.timelines[0].num_tokens == 1
    assert recording.errors == {"no end within 0.3 s": 1}


def test_a_client_that_gives_up_closes_its_connection():
    with serving(Behaviour(faults={6: "silent"})) as server, open_server(Server(server.url)) as target:
        recording = target.run([request(6, cancel_after_seconds=0.1), request(9, cancel_after_seconds=60)], [0.0, 0.0])
        assert [line.outcome for line in recording.timelines] == [Outcome.CANCELLED, Outcome.COMPLETED]
        assert recording.timelines[0].ended_at >= 0.1
        give_up_at = time.monotonic() + WAIT_SECONDS
        while not server.num_left:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)


def test_a_client_of_a_closed_loop_waits_for_its_answer():
    recording, _ = run([request(6)] * 6, plan=ClosedLoop(2, pauses=[0.0] * 6, due_at=[None] * 6))
    assert len(recording.completed) == 6
    due_at = [line.due_at for line in recording.timelines]
    ends = sorted(line.ended_at for line in recording.timelines)
    assert due_at[:2] == [0.0, 0.0]
    assert all(due >= end for due, end in zip(due_at[2:], ends, strict=False))


def test_progress_is_told_while_a_run_goes_on():
    heard: list[Progress] = []
    run([request(6), request(9)], Behaviour(faults={6: "silent"}), timeout_seconds=1.2, watch=heard.append)
    assert (heard[0].num_requests, heard[0].num_sent, heard[0].num_ended, heard[0].num_tokens) == (2, 2, 1, 10)
    assert "2 of 2 sent, 1 running, 1 done" in str(heard[0])


def test_a_server_may_have_a_key_and_another_model(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    with serving() as server, open_server(Server(server.url, "second")) as target:
        target.run([request(7)], [0.0])
    assert server.headers[-1]["Authorization"] == "Bearer sesame"
    assert server.asked(7)[0]["model"] == "second"


def test_a_server_that_is_not_there_is_named():
    with (
        pytest.raises(BenchError, match=r"gone at http://127\.0\.0\.1:9/v1 does not answer"),
        open_server(Server("http://127.0.0.1:9/v1", name="gone")),
    ):
        pass


def test_a_server_without_completions_is_told_apart_from_one_without_models():
    with serving() as server:
        with pytest.raises(BenchError, match=r"lists no model.*--served-model"), open_server(Server(f"{server.url}/x")):
            pass
        with (
            pytest.raises(BenchError, match="takes no completions: HTTP 404"),
            open_server(Server(f"{server.url}/x", "first")),
        ):
            pass


def bench(*arguments: object):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_command_measures_a_server_without_a_model_of_our_own(tmp_path, monkeypatch):
    monkeypatch.setattr("loadtest.bench.measure_floor", lambda config: pytest.fail("a model was read"))
    out = tmp_path / "out.json"
    with serving() as server, serving(Behaviour(num_at_once=2)) as other:
        result = bench(
            *("--target", "openai", "--url", server.url, "--scenario", "smoke", "--slo", "e2e=60", "--seed", 3),
            *("--peers", f"other={other.url}", "--runs", 2, "--json", out),
        )
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert (report["target"], report["scenario"], report["seed"], report["floor"]) == ("openai", "smoke", 3, None)
    assert report["num_completed"] == 12
    assert report["goodput"]["share"] == 1.0
    assert report["facts"] | {"url": None} == {
        **{"name": "openai", "url": None, "model": "first"},
        **{"prompts": "token ids", "lengths": "exact"},
    }
    assert report["tenants"]["acme"]["weight"] == 2.0
    assert {row["label"] for row in report["requests"]} == {"short", "long"}
    assert ["requests" in run for run in report["runs"]].count(True) == 1
    assert ["requests" in run for run in report["peers"]["other"]["runs"]].count(True) == 1
    assert "openai / other: output_tokens_per_s" in result.output


def test_measuring_a_server_takes_no_torch():
    code = (
        "import sys, loadtest.arguments, loadtest.bench; assert not {'torch', 'transformers', 'numpy'} & {*sys.modules}"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True
    )


def test_the_command_fails_if_a_request_did(tmp_path):
    with serving(Behaviour(faults={24: "status"})) as server:
        result = bench("--target", "openai", "--url", server.url, "--scenario", "smoke")
    assert result.exit_code == 1
    assert "error: 3 x HTTP 500: out of memory" in result.output
