"""Whether memory stays flat while jobs come and go: the growth of every process over its life."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadtest.faults.fleet import Fleet

SAMPLE_SECONDS = 1.0
WARM_SAMPLES = 25
"""A process that has just started still loads torch and fills its caches; its growth is counted from here."""
KIB_PER_MIB = 1024


@dataclass
class _Life:
    kind: str
    first_mib: int = 0
    last_mib: int = 0
    num_samples: int = 0

    def note(self, mib: int) -> None:
        self.num_samples += 1
        if self.num_samples <= WARM_SAMPLES:
            self.first_mib = mib
        self.last_mib = mib


class MemoryWatch:
    """Run it as a task, and cancel it at the end."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lives: dict[int, _Life] = {}

    async def run(self) -> None:
        while True:
            for kind, pid in await self._processes():
                with suppress(OSError, StopIteration):  # it has just ended
                    self._lives.setdefault(pid, _Life(kind)).note(_resident_mib(pid))
            await asyncio.sleep(SAMPLE_SECONDS)

    def growth_mib(self) -> dict[str, int]:
        """By kind of process: the most that any of them has grown since it was warm."""
        growth: dict[str, list[int]] = defaultdict(list)
        for life in self._lives.values():
            growth[life.kind].append(life.last_mib - life.first_mib)
        return {kind: max(values) for kind, values in sorted(growth.items())}

    async def _processes(self) -> list[tuple[str, int]]:
        """An engine counts once its worker is ready: on a busy machine it may take long to load torch."""
        found = [] if self._fleet.nats.pid is None else [("nats", self._fleet.nats.pid)]
        for name, process in self._fleet.processes.items():
            if process.is_running:
                found.append(("queue" if name.startswith("queue") else "worker", process.pid))
                if not name.startswith("queue") and (await self._fleet.answers(name, "readiness")).ok:
                    found += [("engine", pid) for pid in self._fleet.engines(name)]
        return found


def _resident_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // KIB_PER_MIB for line in lines if line.startswith("VmRSS:"))
