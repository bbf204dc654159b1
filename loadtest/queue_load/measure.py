"""What is measured with the real processes, for one policy and one number of waiting jobs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from headway.core.queue_config import QueuePolicy
from headway.settings import Settings
from loadtest.child import Child
from loadtest.machine import CpuClock
from loadtest.queue_load.options import Part, QueueLoad
from loadtest.queue_load.path import (
    MODEL,
    Broker,
    Say,
    load_settings,
    memory_bytes,
    model_status,
    open_broker,
    wait_until_indexed,
    with_policy,
)
from loadtest.queue_load.queue_child import AskQueue, Decisions, Started, open_queue
from loadtest.queue_load.summaries import summary_of
from loadtest.queue_load.workers_child import Serve, Served, StartWorkers, open_workers

NUM_ALONE = 500
"""Jobs that one worker takes one after the other."""
PREFETCH = 2


@dataclass(frozen=True)
class _Path:
    """One queue on one broker, full."""

    broker: Broker
    queue: Child
    lease_address: str
    settings: Settings
    options: QueueLoad
    num_waiting: int
    say: Say


def measure(options: QueueLoad, settings: Settings, policy: QueuePolicy, num_waiting: int, say: Say) -> dict[str, Any]:
    """Keys as in `loadtest.queue_load.bench`: ``intake``, and by number of workers ``serve`` and ``records``."""
    settings = with_policy(load_settings(replace(options, num_waiting=num_waiting), settings), policy)
    with ExitStack() as parts:
        broker = parts.enter_context(open_broker(options, settings))
        settings = replace(settings, broker=replace(settings.broker, nats_url=broker.nats.url))
        empty_bytes = _memory_of_an_empty_queue(settings, say)
        say(f"{policy}: publishing {num_waiting} jobs")
        broker.publish(num_waiting)
        queue, started = parts.enter_context(open_queue(settings, say))
        path = _Path(broker, queue, started.lease_address, settings, options, num_waiting, say)
        found: dict[str, Any] = {"intake": _intake(path, started, empty_bytes)}
        for part in (Part.SERVE, Part.RECORDS):
            if part in options.parts:
                found[part.value] = {str(number): _serve(path, number, part) for number in options.num_workers}
        return found


def _memory_of_an_empty_queue(settings: Settings, say: Say) -> int:
    with open_queue(settings, say) as (queue, _):
        return memory_bytes(queue.pid)


def _intake(path: _Path, started: Started, empty_bytes: int) -> dict[str, Any]:
    status = model_status(path.queue)
    held_bytes = status.queue.num_payload_bytes
    grown = memory_bytes(path.queue.pid) - empty_bytes
    return {
        "num_jobs": status.num_waiting_jobs,
        "seconds": started.read_seconds,
        "seconds_per_job": started.read_seconds / status.num_waiting_jobs,
        "jobs_per_s": status.num_waiting_jobs / started.read_seconds,
        "payload_bytes_held": held_bytes,
        "bytes_per_job_beyond_payload": (grown - held_bytes) / status.num_waiting_jobs,
    }


def _serve(path: _Path, num_workers: int, part: Part) -> dict[str, Any]:
    """From a full queue, filled again whenever half of it is gone."""
    lease = replace(path.settings.lease, lease_address=path.lease_address)
    settings = replace(path.settings, lease=lease)
    start = StartWorkers(settings, MODEL, num_workers, path.options.max_num_seqs, PREFETCH, part is Part.RECORDS)
    totals = _Totals()
    alone = _grants_alone(path, settings) if num_workers == 1 else None
    with open_workers(start, path.say) as workers:
        what = f"{num_workers} worker{'' if num_workers == 1 else 's'}"
        path.say(f"{path.settings.queue.policy}, {path.num_waiting} waiting: {what} ({part})")
        while (num_left := path.options.num_served - totals.num_jobs) > 0:
            _fill(path)
            path.queue.ask(AskQueue.DECISIONS)
            _round(path, workers, min(num_left, max(1, path.num_waiting // 2)), totals)
    _fill(path)
    return {**totals.report(), "alone_grant_seconds": alone}


def _grants_alone(path: _Path, settings: Settings) -> dict[str, float] | None:
    """One worker with room for one job: a demand's way to the leader and a grant's way back, behind nobody."""
    start = StartWorkers(settings, MODEL, num_workers=1, max_num_seqs=1, prefetch=0, writes_records=False)
    with open_workers(start, path.say) as workers:
        served: Served = workers.ask(Serve(min(NUM_ALONE, path.num_waiting // 2)))
    return summary_of(served.latencies)


def _fill(path: _Path) -> None:
    """A worker may have been granted a job more than it wanted, which it still ends: hence again and again."""
    wait_until_indexed(path.queue, path.broker)
    while (num_missing := path.num_waiting - path.broker.num_jobs()) > 0:
        path.broker.publish(num_missing)
        wait_until_indexed(path.queue, path.broker)


def _round(path: _Path, workers: Child, num_jobs: int, totals: _Totals) -> None:
    processes = {"queue": path.queue.pid, "nats-server": path.broker.nats.pid, "workers": workers.pid}
    cpu, started = CpuClock(processes), time.perf_counter()
    served: Served = workers.ask(Serve(num_jobs))
    path.broker.wait_for_jobs(path.num_waiting - served.num_jobs)
    totals.settled_seconds += time.perf_counter() - started
    totals.add(served, path.queue.ask(AskQueue.DECISIONS), cpu.elapsed())


class _Totals:
    """Over the rounds."""

    def __init__(self) -> None:
        self.num_jobs = 0
        self.ended_seconds = 0.0
        self.settled_seconds = 0.0
        self._latencies: list[float] = []
        self._decisions: list[float] = []
        self._num_grants = 0
        self._cpu: dict[str, float] = {}

    def add(self, served: Served, decisions: Decisions, cpu: dict[str, float]) -> None:
        self.num_jobs += served.num_jobs
        self.ended_seconds += served.seconds
        self._latencies += served.latencies
        self._decisions += decisions.seconds
        self._num_grants += decisions.num_grants
        self._cpu = {name: self._cpu.get(name, 0.0) + seconds for name, seconds in cpu.items()}

    def report(self) -> dict[str, Any]:
        return {
            "num_jobs": self.num_jobs,
            "num_grants": self._num_grants,
            "ended_per_s": self.num_jobs / self.ended_seconds,
            "settled_per_s": self.num_jobs / self.settled_seconds,
            "grant_seconds": summary_of(self._latencies),
            "decision_seconds": summary_of(self._decisions),
            "cpu_seconds": self._cpu,
            "queue_cpu_seconds_per_job": self._cpu["queue"] / self.num_jobs,
        }
