"""A process that is asked and answers, whatever becomes of either end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.child import Child
from loadtest.errors import BenchError, BenchInputError

ECHO = """
from headway.core.errors import EngineError, SettingError
from loadtest.child import asked

def main():
    with asked() as questions:
        while True:
            match questions.next():
                case "print": print("to whom?"); questions.answer("printed")
                case "stage": questions.stage("busy"); questions.answer("done")
                case "note": questions.note({"half": 0.5}); questions.answer("done")
                case "fail": raise EngineError("it is broken")
                case "refuse": raise SettingError("model", "nowhere", "name another")
                case "crash": raise SystemExit(7)
                case question: questions.answer(question)
"""


@pytest.fixture
def echo(tmp_path, monkeypatch) -> Child:
    (tmp_path / "echo_child.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    heard: list[str] = []
    noted: list[object] = []
    child = Child("echo_child", heard.append, {"GREETING": "hello"}, noted.append)
    child.heard, child.noted = heard, noted
    yield child
    child.close()


def test_answers_come_in_the_order_of_the_questions_whatever_is_printed_and_however_long(echo):
    long = list(range(100_000))
    assert [echo.ask(question) for question in ("print", long, {"a": 1})] == ["printed", long, {"a": 1}]


def test_stages_are_heard_and_are_no_answers(echo):
    assert echo.ask("stage") == "done"
    assert echo.heard == ["busy"]


def test_notes_are_taken_while_an_answer_is_worked_on(echo):
    assert echo.ask("note") == "done"
    assert echo.noted == [{"half": 0.5}]
    assert echo.heard == []


def test_its_errors_are_ours(echo):
    with pytest.raises(BenchError, match="it is broken"):
        echo.ask("fail")


def test_what_it_was_asked_wrongly_is_still_told_from_what_failed(echo):
    with pytest.raises(BenchInputError, match="name another"):
        echo.ask("refuse")


def test_its_death_is_told_to_who_asks_and_to_who_only_looks(echo):
    echo.check()
    with pytest.raises(BenchError, match="status 7"):
        echo.ask("crash")
    with pytest.raises(BenchError, match="status 7"):
        echo.check()


PARENT = """
from loadtest.child import Child

child = Child("echo_child", print)
child.ask("are you there?")
print(child.pid, flush=True)
input()
"""


def start_parent() -> tuple[subprocess.Popen[str], int]:
    """A process with such a child, and the child's id."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return parent, int(parent.stdout.readline())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise")
async def test_it_ends_when_its_parent_is_killed(echo, tmp_path, eventually):
    parent, pid = start_parent()
    os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    await eventually(lambda: not Path(f"/proc/{pid}").exists())
