"""Totals over the waiting jobs, kept while jobs come and go: asking for them never walks the queue."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headway.core.job import JobKey
from headway.core.queued_job import QueuedJob
from headway.core.stats import QueueStats

_SLACK = 64
"""Stale entries that a heap may hold in any case."""


class JobHeap:
    """Waiting jobs by a time, the earliest first.

    Jobs leave the queue from anywhere, so entries are not removed with them but recognised as stale when they come
    up, or all at once when they outnumber the waiting jobs. O(log n) amortised.
    """

    def __init__(self, waiting: Mapping[JobKey, QueuedJob]) -> None:
        self._waiting = waiting
        self._entries: list[_Entry] = []

    def push(self, time: float, job: QueuedJob) -> None:
        heapq.heappush(self._entries, _Entry(time, job.stream_sequence, job.key))
        if len(self._entries) > 2 * len(self._waiting) + _SLACK:
            self._entries = sorted({entry for entry in self._entries if self._job(entry) is not None})

    def first(self) -> QueuedJob | None:
        while self._entries:
            job = self._job(self._entries[0])
            if job is not None:
                return job
            heapq.heappop(self._entries)
        return None

    def _job(self, entry: _Entry) -> QueuedJob | None:
        job = self._waiting.get(entry.key)
        return job if job is not None and job.stream_sequence == entry.sequence else None


class _Entry(NamedTuple):
    time: float
    sequence: int
    key: JobKey


class Backlog:
    """Counts of jobs, tokens, pages and payload bytes that wait. A job must not change between `add` and `remove`."""

    def __init__(self, waiting: Mapping[JobKey, QueuedJob]) -> None:
        self._waiting = waiting
        self._by_arrival = JobHeap(waiting)
        self._by_tenant: Counter[str] = Counter()
        self._num_tokens = 0
        self._num_pages = 0
        self._page_size = 1
        self.num_payload_bytes = 0

    def add(self, job: QueuedJob) -> None:
        self._by_tenant[job.key.tenant] += 1
        self._by_arrival.push(job.arrival_seconds, job)
        self._count(job, 1)

    def remove(self, job: QueuedJob) -> None:
        self._by_tenant[job.key.tenant] -= 1
        if not self._by_tenant[job.key.tenant]:
            del self._by_tenant[job.key.tenant]
        self._count(job, -1)

    def stats(self, now: float, page_size: int) -> QueueStats:
        if page_size != self._page_size:
            self._page_size = page_size
            self._num_pages = sum(job.num_pages(page_size) for job in self._waiting.values())
        oldest = self._by_arrival.first()
        return QueueStats(
            num_waiting=len(self._waiting),
            num_waiting_by_tenant=dict(self._by_tenant),
            num_backlog_tokens=self._num_tokens,
            num_backlog_pages=self._num_pages,
            oldest_wait_seconds=0.0 if oldest is None else max(0.0, now - oldest.arrival_seconds),
            num_payload_bytes=self.num_payload_bytes,
        )

    def _count(self, job: QueuedJob, sign: int) -> None:
        self._num_tokens += sign * job.num_backlog_tokens
        self._num_pages += sign * job.num_pages(self._page_size)
        self.num_payload_bytes += sign * job.num_payload_bytes
