"""What `headway top` remembers, and how it shows that."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headway.commands.history import MAX_SAMPLES, WINDOW_SECONDS, History
from headway.commands.history_view import HistoryView
from headway.commands.sparkline import sparkline
from headway.core.lease_messages import WorkerLoad
from headway.core.stats import QueueStats
from headway.core.status import ModelStatus, QueueStatus, WorkerCapacity, WorkerStatus

CAPACITY = WorkerCapacity(num_pages=100, page_size=16)


def model_status(name="default", waiting=0, wait=0.0, tokens=0):
    queue = QueueStats(waiting, {}, 0, oldest_wait_seconds=wait)
    return ModelStatus(name, queue, 0, 0, 0, 0, CAPACITY, 0, tokens)


def worker(running, name="default", is_connected=True):
    load = None if running is None else WorkerLoad(running, 0, 50, 0.01)
    return WorkerStatus("i", "w", name, is_connected, CAPACITY, 64, 0, 0, load)


def status(*models, workers=(), epoch=1):
    return QueueStatus(epoch=epoch, is_granting=True, models=models, workers=workers)


def test_the_newest_is_last_and_each_share_shows_its_most_waiting_jobs():
    history = History(window_seconds=4.0)
    for at, waiting in ((0.1, 5), (1.2, 1), (1.8, 9), (3.5, 2)):
        history.add(status(model_status(waiting=waiting)), at)
    assert history.waiting("default", 3.6, 4) == [5, 9, None, 2]


def test_what_is_older_than_the_window_is_forgotten():
    history = History(window_seconds=4.0)
    history.add(status(model_status(waiting=7), model_status("old")), 0.0)
    history.add(status(model_status(waiting=1)), 5.0)
    assert history.models == ["default"]
    assert history.waiting("default", 5.0, 4) == [None, None, None, 1]


def test_no_watch_is_so_long_that_it_fills_the_memory():
    history = History()
    for number in range(2 * MAX_SAMPLES):
        history.add(status(model_status(waiting=1)), number * 0.001)
    assert len(history._samples["default"]) == MAX_SAMPLES


def test_tokens_per_second_come_from_what_a_leader_has_counted():
    history = History(window_seconds=4.0)
    for at, tokens in ((0.5, 100), (1.5, 300), (2.5, 300)):
        history.add(status(model_status(tokens=tokens)), at)
    assert history.tokens_per_second("default", 3.0, 4) == [None, 200.0, 0.0, None]


def test_a_new_leader_counts_anew_and_makes_a_gap_but_no_nonsense():
    history = History(window_seconds=4.0)
    history.add(status(model_status(tokens=1000)), 0.5)
    history.add(status(model_status(tokens=10), epoch=2), 1.5)
    history.add(status(model_status(tokens=30), epoch=2), 2.5)
    assert history.tokens_per_second("default", 3.9, 4) == [None, None, 20.0, None]


def test_a_leader_that_does_not_count_tokens_has_no_rate():
    history = History(window_seconds=4.0)
    for at in (0.5, 1.5):
        history.add(status(model_status(tokens=None)), at)
    assert set(history.tokens_per_second("default", 2.0, 4)) == {None}


def test_running_sequences_are_those_of_the_models_connected_workers():
    history = History(window_seconds=4.0)
    workers = (worker(3), worker(4), worker(None), worker(50, is_connected=False), worker(60, name="other"))
    history.add(status(model_status(), workers=workers), 0.5)
    assert history.running("default", 0.6, 4)[-1] == 7


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([0, 0, 0], "▁▁▁"),
        ([None, 5, None], " █ "),
        ([0, 0.001, 100], "▁▂█"),
        ([], ""),
    ],
)
def test_a_line_goes_from_0_to_the_most_and_what_is_not_0_is_seen(values, line):
    assert sparkline(values) == line


def test_a_terminal_without_blocks_gets_other_signs():
    assert sparkline([0, 7, None], ascii_only=True) == "_# "


# -- on a terminal ---------------------------------------------------------------------------------------------------


def shown(history, width, now, interval=1.0):
    console = Console(file=io.StringIO(), width=width)
    console.print(HistoryView(history, now, interval))
    return console.file.getvalue()


@pytest.fixture
def history():
    """Five minutes of a queue that fills, at one sample a second."""
    history = History()
    for second in range(int(WINDOW_SECONDS)):
        model = model_status(waiting=second, wait=second / 2, tokens=100 * second)
        history.add(status(model, workers=(worker(second % 5),)), float(second))
    return history


def test_now_is_what_was_said_last_and_unknown_when_nobody_answers_any_more():
    history = History()
    for at, waiting in ((296.0, 9), (299.0, 2)):
        history.add(status(model_status(waiting=waiting)), at)
    columns = shown(history, 100, 299.5).splitlines()[1].split()
    assert columns[-2:] == ["2", "9"]
    assert shown(history, 100, 330.0).splitlines()[1].split()[-2:] == ["–", "9"]


def test_the_most_is_not_less_than_what_is_now():
    history = History()
    for at, running in ((298.0, 1), (299.0, 4)):
        history.add(status(model_status(), workers=(worker(running),)), at)
    line = next(row for row in shown(history, 100, 299.5).splitlines() if "running sequences" in row)
    assert line.split()[-2:] == ["4", "4"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_line_takes_the_room_that_there_is_and_nothing_is_cut(history, width):
    text = shown(history, width, WINDOW_SECONDS)
    rows = text.splitlines()
    assert all(len(row) <= width for row in rows)
    assert "…" not in text
    assert "149.5 s" in text
    assert "299" in text
    assert "▂" in text
    assert "█" in text


def test_a_terminal_that_is_too_narrow_for_lines_shows_the_figures(history):
    text = shown(history, 44, WINDOW_SECONDS)
    assert "█" not in text
    assert "149.5 s" in text
    assert "output tokens/s" in text


def test_a_watch_with_long_pauses_has_no_gaps():
    history = History()
    for second in range(0, 300, 20):
        history.add(status(model_status(waiting=second + 1)), float(second))
    line = next(row for row in shown(history, 100, 299.0, interval=20.0).splitlines() if "waiting jobs" in row)
    assert len([sign for sign in line if sign in "▁▂▃▄▅▆▇█"]) == 7


def test_of_many_models_those_with_most_waiting_jobs_are_shown():
    history = History()
    history.add(status(*(model_status(f"m{number}", waiting=number) for number in range(9))), 1.0)
    text = shown(history, 100, 1.5)
    assert "m8" in text
    assert "m5" in text
    assert "m4" not in text
    assert "and 5 more models" in text


def test_before_anything_was_seen_there_is_nothing_to_show_and_no_error():
    assert "now" in shown(History(), 80, 1.0)
