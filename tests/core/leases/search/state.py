"""What one state of the searched world consists of, and how much may happen in a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from headway.core.job import JobKey
from tests.core.leases.search.logs import Log

KEYS = (JobKey("acme", "0"), JobKey("acme", "1"))
NOT_YET, GONE = -1, -2
"""Of a leader: instead of a number."""
EOF = -1
"""In a stream: the other end has closed it."""


class Fault(Enum):
    STREAM = auto()
    """A stream breaks, with all that is on its way."""
    WORKER = auto()
    """A worker dies; another comes in its place."""
    ENGINE = auto()
    """A worker's engine dies, and is started again."""
    DRAIN = auto()
    """A worker is told to stop, hands back what it holds, and ends."""
    LEASE = auto()
    """The leader hears nothing of a living worker for the length of a lease."""
    LEADER = auto()
    """The leader dies, and its successor takes over."""
    TAKEOVER = auto()
    """The successor takes over while the leader lives: it goes on, and finds out some time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one run may hold; two workers and two leaders always."""

    num_jobs: int = 2
    num_faults: int = 1
    faults: tuple[Fault, ...] = tuple(Fault)
    """Of these kinds; there is one successor, so one change of leaders at most."""
    is_under_way: bool = False
    """Both workers have asked for jobs and the jobs are granted, one to each, before anything else happens; else one
    worker has asked, and no job is there yet."""
    num_recalls: int = 0
    num_cancels: int = 0
    num_reports: int = 0
    """Heartbeats that list the jobs which a worker holds."""
    num_tokens: int = 1
    """Per job."""
    max_num_seqs: int = 1
    prefetch: int = 1
    max_grants: int = 5
    """By one leader. A run that needs more is not followed, but must still be able to end."""


class Link(NamedTuple):
    """One lease stream. Messages by number; what an end has closed it neither reads nor writes any more."""

    leader: int
    worker: int
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    worker_open: bool = True
    leader_open: bool = True


class State(NamedTuple):
    leaders: tuple[int, ...]
    workers: tuple[int, ...]
    links: tuple[tuple[str, Link], ...]
    logs: tuple[Log, ...]
    num_published: int
    unacked: tuple[int, ...]
    """Jobs in the stream, by index."""
    ends: tuple[tuple[int, int], ...]
    """Leader and job: it has read where the log ends, then shown that it leads, and nothing was written since."""
    num_faults: int
    """That may still come."""
    num_recalls: int
    num_cancels: int
    num_reports: int
