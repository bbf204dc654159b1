"""Keeps Python's garbage collector from walking over all the jobs that wait.

A hundred thousand jobs are a million objects. A full collection looks at each of them, which takes a third of a second
in which nothing else happens: long enough for a leader to miss the renewal of its lock, and pointless, since jobs are
freed by counting references. So whenever many have come, all that is there is set aside (`gc.freeze`); the collector
then only sees what came later. The price: circular garbage of that moment stays until the queue is short again.
"""

from __future__ import annotations

import gc

STEP_JOBS = 10_000
"""Jobs that the collector may have to walk over: some tens of milliseconds."""


class QuietHeap:
    """One queue process's. Tell it how many jobs there are, now and then."""

    def __init__(self) -> None:
        self._num_frozen_jobs = 0

    def has(self, num_jobs: int) -> None:
        if num_jobs >= self._num_frozen_jobs + STEP_JOBS:
            gc.collect(1)  # the young ones: what dies soon should not be kept
            gc.freeze()
            self._num_frozen_jobs = num_jobs
        elif self._num_frozen_jobs and num_jobs < STEP_JOBS:
            gc.unfreeze()
            self._num_frozen_jobs = 0

    def forget(self) -> None:
        """Of a leader that leads no longer all jobs are garbage. It may take its time, but it must be cleared away."""
        if self._num_frozen_jobs:
            gc.unfreeze()
            gc.collect()
            self._num_frozen_jobs = 0
