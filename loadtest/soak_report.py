"""What a soak has shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from loadtest.faults.fleet import Fleet
from loadtest.faults.joblogs import JobLog
from loadtest.faults.process import until

SETTLE_SECONDS = 60.0
MAX_COMPLAINTS = 20
MAX_GROWTH_MIB = 64
"""Of any process of ours after it was warm. (nats-server keeps what it likes of the streams in memory.)"""


@dataclass(frozen=True)
class Leftovers:
    """What should be nothing once all jobs have ended."""

    jobs: int
    """Still in the stream."""
    leases: int
    """Jobs that the leader counts as held by a worker."""
    pages: int
    """Of keys and values, that sequences of the workers still hold."""

    @property
    def is_nothing(self) -> bool:
        return not (self.jobs or self.leases or self.pages)


@dataclass(frozen=True)
class SoakReport:
    num_jobs: int
    num_completed: int
    num_gaps: int
    num_overlaps: int
    leftovers: Leftovers
    faults: Mapping[str, int]
    num_attempts: int
    memory_growth_mib: Mapping[str, int] = field(default_factory=dict)
    """See `MemoryWatch`."""
    exits: Mapping[str, int] = field(default_factory=dict)
    """See `FaultMachine.exits`."""
    complaints: tuple[str, ...] = ()

    @classmethod
    def of(cls, logs: Mapping[str, JobLog], num_jobs: int, left: Leftovers, faults: Mapping[str, int]) -> Self:
        return cls(
            num_jobs=num_jobs,
            num_completed=sum(_is_complete(log) for log in logs.values()),
            num_gaps=sum(log.num_gaps for log in logs.values()),
            num_overlaps=sum(log.num_overlaps for log in logs.values()),
            leftovers=left,
            faults=dict(sorted(faults.items())),
            num_attempts=sum(len(log.workers) for log in logs.values()),
            complaints=tuple(_complaints(logs))[:MAX_COMPLAINTS],
        )

    @property
    def is_good(self) -> bool:
        is_whole = self.num_completed == self.num_jobs and not (self.num_gaps or self.num_overlaps)
        is_flat = all(growth <= MAX_GROWTH_MIB for kind, growth in self.memory_growth_mib.items() if kind != "nats")
        return is_whole and is_flat and self.leftovers.is_nothing

    def as_json(self) -> dict[str, Any]:
        return {
            "jobs": self.num_jobs,
            "completed": self.num_completed,
            "gaps": self.num_gaps,
            "overlaps": self.num_overlaps,
            "leaked_pages": self.leftovers.pages,
            "leaked_leases": self.leftovers.leases,
            "jobs_left": self.leftovers.jobs,
            "attempts": self.num_attempts,
            "faults": dict(self.faults),
            "exits": dict(self.exits),
            "memory_growth_mib": dict(self.memory_growth_mib),
        }


async def leftovers(fleet: Fleet) -> Leftovers:
    """As soon as there are none, else what there is after a while."""

    left: Leftovers | None = None

    async def is_nothing() -> bool:
        nonlocal left
        with suppress(OSError):  # a worker that has just been started again
            left = await _left(fleet) or left
        return left is not None and left.is_nothing

    with suppress(TimeoutError):
        await until(is_nothing, SETTLE_SECONDS)
    assert left is not None, "nobody leads, or no worker says what it holds"
    return left


async def _left(fleet: Fleet) -> Leftovers | None:
    """None while nobody leads."""
    if not (workers := await fleet.workers()):
        return None
    leases = sum(worker.num_held_jobs for worker in workers)
    pages = [await fleet.used_pages(worker.name) for worker in workers]
    return Leftovers(await fleet.logs.num_jobs(), leases, sum(pages))


def _is_complete(log: JobLog) -> bool:
    return len(log.of_kind("end")) == 1 and log.end["finish_reason"] == "length"


def _complaints(logs: Mapping[str, JobLog]) -> list[str]:
    return [
        f"{job_id}: {log.num_gaps} gaps, {log.num_overlaps} overlaps, {log.kinds}"
        for job_id, log in logs.items()
        if log.num_gaps or log.num_overlaps or not _is_complete(log)
    ]
