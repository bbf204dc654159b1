"""What passes between `bench` and a peer's process."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.errors import BenchError
from loadtest.peers import protocol
from loadtest.peers.process import PeerProcess
from loadtest.peers.protocol import Answer, Task, TaskRequest, Times, drive, serve
from loadtest.workloads.requests import Request


class OneTokenAStep:
    """Gives the sequences one token each, in turn."""

    def __init__(self) -> None:
        self._left: dict[int, int] = {}

    def add(self, number: int, request: TaskRequest) -> None:
        self._left[number] = request.num_output_tokens

    def step(self) -> Iterator[tuple[int, int, bool]]:
        for number in list(self._left):
            self._left[number] -= 1
            yield number, 1, not self._left[number]
            if not self._left[number]:
                del self._left[number]

    @property
    def is_busy(self) -> bool:
        return bool(self._left)


def test_a_driven_engine_gets_each_request_when_it_is_due():
    answer = drive(OneTokenAStep(), Task([TaskRequest([1], 2, due_at=0.02), TaskRequest([1], 3, due_at=0.0)]))
    assert [times.num_tokens for times in answer.times] == [2, 3]
    assert answer.times[0].first_token_at >= 0.02
    assert all(times.ended_at == times.last_token_at for times in answer.times)
    assert [len(times.gaps) for times in answer.times] == [1, 2]


def test_tasks_and_answers_survive_the_wire():
    task = Task([TaskRequest([1, 2], 3, 0.5)])
    assert Task.from_line(task.to_line()) == task
    answer = Answer([Times(3, 0.1, 0.2, 0.3, [0.05, 0.05]), Times()])
    assert Answer.from_line(answer.to_line()) == answer


def test_a_runner_answers_until_its_input_ends(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(Task([]).to_line() * 2))
    answers = io.StringIO()
    serve(lambda task: Answer([]), answers, {"version": "1"})
    assert [*map(str.strip, answers.getvalue().splitlines())] == [
        '{"ready": {"version": "1"}}',
        '{"times": []}',
        '{"times": []}',
    ]


def test_a_peer_that_dies_says_why(tmp_path):
    process = PeerProcess("vllm", [sys.executable, "-c", "raise SystemExit('no such model')"], tmp_path, {})
    with pytest.raises(BenchError, match="no such model"):
        process.wait_until_ready()
    process.close()


def test_an_unfinished_request_is_not_counted_as_done(tmp_path):
    code = """
import sys
print('{"ready": {}}', flush=True)
sys.stdin.readline()
print('{"times": [{"num_tokens": 1, "first_token_at": 0.1, "last_token_at": 0.1, "ended_at": null}]}', flush=True)
"""
    process = PeerProcess("vllm", [sys.executable, "-c", code], tmp_path, {})
    process.wait_until_ready()
    recording = process.run([Request((1,), 4, 0.0)], [0.0])
    process.close()
    assert recording.completed == []
    assert recording.num_output_tokens == 1


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_peer_gets_no_cpu_but_in_its_turn_and_takes_its_children_with_it(tmp_path, eventually):
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print('{"ready": {"child": %d}}' % child.pid, flush=True)
sys.stdin.readline()
print('{"times": []}', flush=True)
"""
    process = PeerProcess("vllm", [sys.executable, "-c", code], tmp_path, {})
    process.wait_until_ready()
    child = process.facts["child"]
    await eventually(lambda: state_of(child) == "T")
    assert process.run([], []).cpu_seconds["vllm"] >= 0
    await eventually(lambda: state_of(child) == "T")
    process.close()
    await eventually(lambda: not Path(f"/proc/{child}").exists() or state_of(child) == "Z")


def test_runners_need_nothing_of_ours():
    """They run where Headway is not installed."""
    names = [name for name, value in vars(protocol).items() if getattr(value, "__module__", "").startswith("headway")]
    assert names == []
