"""What to measure of the queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headway.core.queue_config import QueuePolicy

LEAST_WAITING = 1000
"""What costs are compared with: growth is from here."""


class Part(StrEnum):
    """What can be measured by itself."""

    CORE = "core"
    """The state machine alone, in this process: no NATS, no lease stream."""
    INTAKE = "intake"
    """The queue process reads a full stream."""
    SERVE = "serve"
    """Workers take jobs from a full queue and settle them over the lease stream alone."""
    RECORDS = "records"
    """The same, but every job also has a log: attempt, tokens and end."""


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One run of ``headway bench --target queue``."""

    num_waiting: int = 100_000
    """The most jobs that wait. Also measured: every power of ten from `LEAST_WAITING` up to it."""
    num_workers: tuple[int, ...] = (1, 8, 64)
    policies: tuple[QueuePolicy, ...] = tuple(QueuePolicy)
    parts: tuple[Part, ...] = (Part.CORE, Part.INTAKE, Part.SERVE)
    num_served: int = 5000
    """Jobs that each number of workers settles; the queue is filled up again meanwhile whenever half of it is gone."""
    max_num_seqs: int = 64
    """Of every worker."""
    num_tenants: int = 10
    payload_bytes: int = 256
    """Of every job."""
    json_path: Path | None = field(default=None)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of waiting jobs, rising."""
        sizes, size = [], LEAST_WAITING
        while size < self.num_waiting:
            sizes.append(size)
            size *= 10
        return (*sizes, self.num_waiting)
