from __future__ import annotations

import io

import pytest

from headway.core.job import FinishReason
from loadtest import screen
from loadtest.progress import TICK_SECONDS, Progress, Ticker, nobody
from loadtest.recording import Timeline


def lines() -> list[Timeline]:
    """One that has ended, one that runs, one that is not sent."""
    done, running, unsent = Timeline(0.0, 2), Timeline(0.0, 2), Timeline(0.0, 2)
    for line in (done, running):
        line.send(0.0, 0.0)
        line.receive(1, 0.5)
    done.receive(1, 1.0)
    done.end(FinishReason.LENGTH, 1.0)
    return [done, running, unsent]


def test_progress_says_what_is_sent_running_and_done_and_how_fast():
    progress = Progress.of(lines(), 2.0)
    assert str(progress) == "2 of 3 sent, 1 running, 1 done, 1.5 tokens/s, first token p50 0.50 s"


def test_a_watcher_is_not_told_more_often_than_it_could_read():
    heard: list[Progress] = []
    ticker = Ticker(lines(), heard.append)
    for number in range(101):
        ticker.tick(number * TICK_SECONDS / 50)
    assert [progress.seconds for progress in heard] == [TICK_SECONDS, 2 * TICK_SECONDS]


def test_where_there_is_no_terminal_nobody_watches(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with screen.watching() as watch:
        assert watch is nobody


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("said", ["round 1 of 1"])
def test_on_a_terminal_one_line_is_drawn_again_and_what_is_said_goes_above_it(monkeypatch, said):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with screen.watching() as watch:
        watch(Progress.of(lines(), 2.0))
        import sys

        print(said, file=sys.stderr, flush=True)
        watch(Progress.of(lines(), 4.0))
    shown = terminal.getvalue()
    assert "1.5 tokens/s" in shown
    assert "0.8 tokens/s" in shown
    assert said in shown
    assert sys.stderr is terminal
