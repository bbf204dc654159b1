"""The tables of `headway top`."""

import io

import pytest
from rich.console import Console

from headway.commands.top import tables
from headway.core.lease_messages import WorkerLoad
from headway.core.stats import QueueStats
from headway.core.status import ModelStatus, QueueStatus, WorkerCapacity, WorkerStatus

CAPACITY = WorkerCapacity(num_pages=11650, page_size=16)
TENANTS = {"bakery": 4000, "school": 300, "travel": 2000}


def make_worker(name, load, is_connected=True):
    return WorkerStatus("i", name, "default", is_connected, CAPACITY, 64, 66, 64, load)


@pytest.fixture
def shown():
    """What a terminal of 80 columns shows of a busy queue."""
    queue = QueueStats(12000, TENANTS, num_backlog_tokens=1234567, oldest_wait_seconds=1234.5)
    model = ModelStatus("default", queue, 0, 120, 5, 0, CAPACITY, 23000)
    workers = (
        make_worker("headway-worker-7f9c5d6b8-x2x4z", WorkerLoad(64, 2, 11647, 0.066)),
        make_worker("vm", None, is_connected=False),
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(tables(QueueStatus(epoch=1, is_granting=True, models=(model,), workers=workers)))
    return console.file.getvalue()


def test_no_state_and_no_number_is_cut_at_80_columns(shown):
    assert "…" not in shown
    for whole in ("connected", "lost", "64/64", "11647/11650", "66 ms", "12000", "1234567", "1234.5 s", "1.97"):
        assert whole in shown


def test_what_a_worker_has_not_said_is_unknown_and_never_0(shown):
    (line,) = [line for line in shown.splitlines() if line.lstrip().startswith("vm")]
    assert "–/64" in line
    assert "–/11650" in line


def test_a_long_name_is_wrapped_and_not_cut(shown):
    assert "headway-worker-7f9c5d" in shown
    assert "x2x4z" in shown
