"""The faults of a soak: one or two at random every few seconds, each made good after a while."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Self

from loadtest.faults.fleet import Fleet
from loadtest.faults.process import Process
from loadtest.faults.proxy import Proxy, serving

log = logging.getLogger(__name__)

PAUSE_SECONDS = (1.0, 4.0)
"""Between the end of one fault and the next."""
STOPPED_SECONDS = (0.5, 3.0)
"""Shorter and longer than a lease."""
CUT_SECONDS = (0.2, 3.0)
RESTART_SECONDS = 0.5
TWO_AT_ONCE = 0.3
"""How often a fault has company."""


class FaultMachine:
    """Starts the processes, breaks them, and starts them again. Each worker and queue has a line of its own to NATS."""

    def __init__(self, fleet: Fleet, num_workers: int, num_queues: int, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.exits: Counter[str] = Counter()
        """By kind of process: how many ended by themselves. A queue that was deposed does."""
        self._fleet = fleet
        self._random = random.Random(seed)
        self._workers = [f"w{number + 1}" for number in range(num_workers)]
        self._queues = [f"queue{number + 1}" for number in range(num_queues)]
        self._lines: dict[str, Proxy] = {}
        self._stack = AsyncExitStack()
        self._deck: list[str] = []
        """Faults that are still to come."""
        self._faults: dict[str, Callable[[], Coroutine[None, None, None]]] = {
            "worker_killed": self._kill_worker,
            "engine_killed": self._kill_engine,
            "queue_killed": self._kill_queue,
            "queue_stopped": self._stop_queue,
            "nats_killed": self._kill_nats,
            "worker_stopped": self._stop_worker,
            "engine_stopped": self._stop_engine,
            "connections_broken": self._break_lines,
            "nothing_comes_through": self._hold_line,
        }

    async def __aenter__(self) -> Self:
        for name in (*self._workers, *self._queues):
            self._lines[name] = await self._stack.enter_async_context(serving(Proxy(self._fleet.nats.url)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start_all(self) -> None:
        for name in self._queues:
            self._start(name)
        for name in self._workers:
            self._start(name)
        await self._fleet.has_workers(*self._workers)

    async def run(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """One fault after the other, now and then two at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_over():
                    await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))
                    await asyncio.gather(*map(self._do, sorted(self._draw())))
                    self._revive()

    def _draw(self) -> set[str]:
        """Every kind comes before any comes again."""
        hand = set()
        for _ in range(2 if self._random.random() < TWO_AT_ONCE else 1):
            self._deck = self._deck or self._random.sample(list(self._faults), len(self._faults))
            hand.add(self._deck.pop())
        return hand

    async def make_good(self) -> None:
        """Everything runs and hears everything again."""
        for line in self._lines.values():
            line.release()
        if not self._fleet.nats.is_running:
            await self._fleet.nats.start()
        for name in (*self._queues, *self._workers):
            self._fleet.processes[name].resume()
        self._revive()
        await self._fleet.has_workers(*self._workers)

    def _revive(self) -> None:
        """As Kubernetes does."""
        for name in (*self._queues, *self._workers):
            if not self._fleet.processes[name].is_running:
                log.info("%s has ended by itself: %s", name, self._fleet.processes[name].said[-500:])
                self.exits[name.rstrip("0123456789")] += 1
                self._start(name)

    async def _do(self, name: str) -> None:
        """A fault that has begun is counted and ended, whatever the clock says."""
        log.info("%s", name)
        self.counts[name] += 1
        doing = asyncio.create_task(self._faults[name](), name=name)
        try:
            await asyncio.shield(doing)
        finally:
            await doing

    async def _kill_worker(self) -> None:
        await self._kill(self._random.choice(self._workers))

    async def _kill_queue(self) -> None:
        await self._kill(self._random.choice(self._queues))

    async def _kill_nats(self) -> None:
        await self._fleet.nats.stop(kill=True)
        await self._wait(CUT_SECONDS)
        await self._fleet.nats.start()

    async def _kill_engine(self) -> None:
        self._fleet.signal_engine(self._random.choice(self._workers), signal.SIGKILL)

    async def _stop_engine(self) -> None:
        pids = self._fleet.signal_engine(self._random.choice(self._workers), signal.SIGSTOP)
        await self._wait(STOPPED_SECONDS)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    async def _stop_worker(self) -> None:
        await self._stop(self._random.choice(self._workers))

    async def _stop_queue(self) -> None:
        await self._stop(self._random.choice(self._queues))

    async def _stop(self, name: str) -> None:
        process = self._fleet.processes[name]
        process.stop()
        await self._wait(STOPPED_SECONDS)
        process.resume()

    async def _break_lines(self) -> None:
        for line in self._lines.values():
            line.cut_after(self._random.randrange(1000))
        await self._wait(CUT_SECONDS)

    async def _hold_line(self) -> None:
        line = self._lines[self._random.choice([*self._workers, *self._queues])]
        line.hold()
        await self._wait(CUT_SECONDS)
        line.release()

    async def _kill(self, name: str) -> None:
        process = self._fleet.processes[name]
        process.kill()
        await process.ended()
        await asyncio.sleep(RESTART_SECONDS)
        self._start(name)

    def _start(self, name: str) -> Process:
        broker = {"nats_url": self._lines[name].url}
        if name in self._queues:
            return self._fleet.start_queue(name, broker=broker)
        return self._fleet.start_worker(name, broker=broker)

    async def _wait(self, seconds: tuple[float, float]) -> None:
        await asyncio.sleep(self._random.uniform(*seconds))
