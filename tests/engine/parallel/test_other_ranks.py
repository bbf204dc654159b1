"""Rank 0's side alone: the others have only begun, and are given no time to load anything."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headway.core.scheduler_config import SchedulerConfig
from headway.engine.config import Device, EngineConfig
from headway.engine.frames import Start
from headway.engine.messages import Failed
from headway.engine.parallel import other_ranks
from headway.engine.parallel.other_ranks import OtherRanks

TIMEOUT_SECONDS = 30.0


@dataclass
class Told:
    """What `OtherRanks` says of losses."""

    losses: queue.SimpleQueue[Failed] = field(default_factory=queue.SimpleQueue)

    def next(self) -> Failed:
        return self.losses.get(timeout=TIMEOUT_SECONDS)


@contextmanager
def started(told: Told, size: int) -> Iterator[OtherRanks]:
    ranks = OtherRanks(told.losses.put)
    config = EngineConfig("/no/such/model", device=Device.CPU, tensor_parallel_size=size)
    ranks.start(Start(config, SchedulerConfig()))
    try:
        yield ranks
    finally:
        ranks.kill()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pids: list[int]) -> None:
    give_up_at = time.monotonic() + TIMEOUT_SECONDS
    while any(map(is_alive, pids)):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_an_engine_of_one_rank_has_no_others() -> None:
    told = Told()
    ranks = OtherRanks(told.losses.put)
    assert ranks.pids == []
    ranks.await_loss(TIMEOUT_SECONDS)
    ranks.stop()
    ranks.kill()
    assert told.losses.empty()


def test_the_first_rank_that_ends_is_told_of_once_and_takes_the_others_with_it() -> None:
    told = Told()
    with started(told, size=4) as ranks:
        assert len(ranks.pids) == 3
        os.kill(ranks.pids[1], signal.SIGKILL)
        assert told.next() == Failed(f"rank 2 (process {ranks.pids[1]}) was killed by SIGKILL")
        ranks.await_loss(TIMEOUT_SECONDS)
        until_gone(ranks.pids)
    assert told.losses.empty()


def test_ranks_that_do_not_listen_are_killed_when_they_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_ranks, "STOP_SECONDS", 0.01)
    told = Told()
    with started(told, size=3) as ranks:
        for pid in ranks.pids:
            os.kill(pid, signal.SIGSTOP)
        ranks.stop()
        assert not any(map(is_alive, ranks.pids))
        ranks.stop()
    assert told.losses.empty()
