"""A worker without an engine: a real lease client that ends every job as soon as it has it.

It says what it holds and wants by the same `WorkerLeases` as a real worker, at the same occasions: after every grant,
after every job that is over. A *step* is one turn of the event loop: all grants that came in a turn end in the next.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from headway.core.job import FinishReason
from headway.core.lease_messages import Demand, Grant, Welcome, WorkerLoad
from headway.core.stats import PageStats, SchedulerStats
from headway.core.worker_leases import GrantVerdict, WorkerFacts, WorkerLeases
from headway.lease.client import LeaseClient
from headway.lease.config import LeaseConfig

NUM_OUTPUT_TOKENS = 4
PROGRESS_SECONDS = 1.0

WriteLog = Callable[[Grant], Awaitable[None]]
"""Writes the job's records, before its end is told."""


class SimulatedWorker:
    """`run` it in a task of its own; `serve` makes it want jobs."""

    def __init__(self, facts: WorkerFacts, prefetch: int, lease: LeaseConfig, write_log: WriteLog | None) -> None:
        self.num_pages = facts.num_pages
        self._leases = WorkerLeases(facts, prefetch)
        self._client = LeaseClient(lease, self._leases.hello)
        self._num_left = 0
        """Jobs that it may still take."""
        self._write_log = write_log
        self._granted: list[Grant] = []
        self._wanted_at: deque[float] = deque()
        """When each of the sequences became free that are asked for and not granted yet."""
        self._last_demand: Demand | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self.is_welcome = asyncio.Event()
        self._is_idle = asyncio.Event()
        self.num_taken = 0
        """Jobs, ever."""
        self.latencies: list[float] = []
        """From when it wanted a job to when it had it, seconds; of the newest `serve`."""

    async def serve(self, num_jobs: int) -> None:
        """Take so many jobs; returns when the end of the last is told.

        Or a few more: what ends makes room for another in the leader's eyes, before it has heard that none is wanted.
        """
        if not num_jobs:
            return
        self._num_left, self.latencies = num_jobs, []
        self._is_idle.clear()
        self._ask()
        await self._is_idle.wait()

    async def run(self) -> None:
        progress = asyncio.create_task(self._report_progress())
        try:
            async for message in self._client.messages():
                match message:
                    case Welcome():
                        self._leases.welcome(message)
                        self._last_demand = None
                        self.is_welcome.set()
                        self._ask()
                    case Grant():
                        self._take(message)
                    case _:
                        pass  # a recall is answered by the job's going on
        finally:
            progress.cancel()

    async def close(self) -> None:
        await self._client.close()

    def _ask(self) -> None:
        """Say what could be taken now, if that is news."""
        demand = self._leases.demand(self._stats())
        demand = replace(demand, num_sequences=min(demand.num_sequences, max(0, self._num_left)))
        if demand != self._last_demand and self._client.send(demand):
            self._last_demand = demand
        num_new = demand.num_sequences - len(self._wanted_at)
        self._wanted_at.extend([time.perf_counter()] * num_new)

    def _take(self, grant: Grant) -> None:
        if self._leases.accept(grant) is not GrantVerdict.START:
            return
        if self._wanted_at:
            self.latencies.append(time.perf_counter() - self._wanted_at.popleft())
        self._num_left -= 1
        self.num_taken += 1
        self._granted.append(grant)
        if len(self._granted) == 1:
            asyncio.get_running_loop().call_soon(self._step)
        self._ask()

    def _step(self) -> None:
        granted, self._granted = self._granted, []
        for grant in granted:
            if self._write_log is None:
                self._end(grant)
            else:
                task = asyncio.create_task(self._write(grant, self._write_log))
                self._writing.add(task)
                task.add_done_callback(self._writing.discard)

    async def _write(self, grant: Grant, write_log: WriteLog) -> None:
        await write_log(grant)
        self._end(grant)

    def _end(self, grant: Grant) -> None:
        ended = self._leases.ended(grant.key, FinishReason.LENGTH, NUM_OUTPUT_TOKENS)
        if ended is not None:
            self._client.send(ended)
        self._last_demand = None
        self._ask()
        if self._num_left <= 0 and not self._leases.held_keys:
            self._is_idle.set()

    async def _report_progress(self) -> None:
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(PROGRESS_SECONDS)
                if self.is_welcome.is_set():
                    self._client.send(self._leases.progress(WorkerLoad(0, 0, self.num_pages, 0.0)))

    def _stats(self) -> SchedulerStats:
        """Of an engine that nothing ever stays in."""
        pages = PageStats(self.num_pages, self.num_pages, 0, 0)
        return SchedulerStats(0, 0, 0, self.num_pages, pages, 0, 0, 0, 0)
