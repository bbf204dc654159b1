"""The waiting jobs of one model: every job of the stream that no worker holds.

    add ──▶ waiting ──take──▶ granted ──settle──▶ ended
               ▲                  │
               └── add (returned) ┘            discard, expire: out of waiting without a worker

All jobs are indexed, so a policy never chooses from a window; only payloads beyond a byte budget are left to the
broker. The parts: `policies` and `fairness` say who is next, `reservations` what happens to a job that does not fit,
`prediction` how long a job will be, `backlog` keeps the totals. This class moves jobs between the states and is the
one place where tenants are charged. `add`, `take`, `discard` and `report` cost O(log n).
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.backlog import Backlog, JobHeap
from headway.core.fairness import WeightedFair
from headway.core.job import JobKey
from headway.core.policies import FifoRanking, Policy, RankedPolicy, ShortestFirstRanking
from headway.core.prediction import LengthPredictor
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.core.queued_job import QueuedJob, WorkerRoom
from headway.core.reservations import Reservations
from headway.core.stats import QueueStats

__all__ = ["JobQueue", "QueueConfig", "QueuePolicy", "QueuedJob", "WorkerRoom"]


class JobQueue:
    """The order of the waiting jobs, and the account of the granted ones."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._waiting: dict[JobKey, QueuedJob] = {}
        self._expired: dict[JobKey, QueuedJob] = {}
        """Out of the order, and not handed out by `expire` yet."""
        self._deadlines = JobHeap(self._waiting)
        self._backlog = Backlog(self._waiting)
        self._predictor = LengthPredictor()
        self._policy = _policy(config)
        self._reservations = Reservations(config, self._policy)
        self.num_output_tokens_total = 0
        """Of all jobs, as far as workers have reported them to this leader; rises only."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._expired)

    def __contains__(self, key: JobKey) -> bool:
        return self.get(key) is not None

    def get(self, key: JobKey) -> QueuedJob | None:
        return self._waiting.get(key) or self._expired.get(key)

    def add(self, job: QueuedJob, now: float) -> None:
        """A new job, or one that a worker gave back: the latter goes to its own place, not to the tail.

        Beyond the byte budget its payload is dropped; the stream still has it.
        """
        assert job.key not in self, f"{job.key} is waiting already"
        if job.num_predicted_tokens is None:
            job.num_predicted_tokens = self._predictor.predict(job)
        if self._backlog.num_payload_bytes + job.num_payload_bytes > self._config.max_payload_bytes_held:
            job.payload = None
        self._waiting[job.key] = job
        self._policy.add(job)
        self._backlog.add(job)
        if job.expires_at is not None:
            self._deadlines.push(job.expires_at, job)
        self._sweep(now)

    def take(self, now: float, room: WorkerRoom) -> QueuedJob | None:
        """Grants the worker its next job: the first in order that fits its room, and not yet expired.

        None: nothing fits, or the worker is kept for a job that does not fit yet. Where ``payload`` is None, fetch
        it by ``stream_sequence``.
        """
        self._sweep(now)
        job = self._reservations.choose(now, room)
        if job is None:
            return None
        self._withdraw(job)
        job.num_grants += 1
        self._charge(job)
        return job

    def discard(self, key: JobKey) -> QueuedJob | None:
        """Removes a waiting job, for instance a cancelled one; None if there is none."""
        job = self._waiting.get(key)
        if job is None:
            return self._expired.pop(key, None)
        self._withdraw(job)
        return job

    def expire(self, now: float) -> list[QueuedJob]:
        """Removes and returns the jobs whose deadline has passed."""
        self._sweep(now)
        expired = list(self._expired.values())
        self._expired.clear()
        return expired

    def release_worker(self, worker: str) -> None:
        """The worker is gone: no job waits for it any longer."""
        self._reservations.release_worker(worker)

    def report(self, job: QueuedJob, num_prompt_tokens: int, num_cached_tokens: int, num_output_tokens: int) -> None:
        """What a worker says of a granted job; cumulative, so a lost or repeated report does no harm.

        Cached tokens are refunded up to the job's first output: later ones may be pages that the job itself filled.
        """
        if job.key in self:
            return
        job.num_prompt_tokens = num_prompt_tokens
        if job.num_output_tokens == 0:
            job.num_cached_tokens = min(num_prompt_tokens, max(job.num_cached_tokens, num_cached_tokens))
        self._count_output(job, num_output_tokens)
        self._charge(job)

    def settle(self, job: QueuedJob, num_output_tokens: int | None, is_whole: bool = True) -> None:
        """The job ended for good, after so many output tokens (None: not known).

        Its length is learnt if it ``is_whole``: one that was cancelled, expired or failed was cut off.
        """
        if num_output_tokens is None:
            return
        if is_whole:
            self._predictor.learn(job.key.tenant, num_output_tokens)
        self.report(job, job.num_prompt_tokens, job.num_cached_tokens, num_output_tokens)

    def stats(self, now: float, page_size: int = 16) -> QueueStats:
        """Totals of the waiting jobs, the expired left out; ``page_size`` in tokens, of the workers that serve them."""
        self._sweep(now)
        return self._backlog.stats(now, page_size)

    def counters(self) -> dict[str, float]:
        """The tenants' virtual counters, for a snapshot; empty unless the policy is weighted-fair."""
        return self._policy.counters()

    def restore_counters(self, counters: Mapping[str, float]) -> None:
        """Takes over an earlier leader's snapshot, before any job is added."""
        self._policy.restore(counters)

    def _sweep(self, now: float) -> None:
        """Sets the jobs aside whose deadline has passed."""
        while (job := self._deadlines.first()) is not None and job.is_expired(now):
            self._withdraw(job)
            self._expired[job.key] = job

    def _withdraw(self, job: QueuedJob) -> None:
        self._reservations.release(job)
        self._policy.remove(job)
        self._backlog.remove(job)
        del self._waiting[job.key]

    def _count_output(self, job: QueuedJob, num_output_tokens: int) -> None:
        """A job that this leader never granted began under another: its first report only sets the mark."""
        rise = max(0, num_output_tokens - job.num_output_tokens)
        job.num_output_tokens += rise
        if job.num_grants or job.charged:
            self.num_output_tokens_total += rise

    def _charge(self, job: QueuedJob) -> None:
        """Charges what was not charged yet; negative once cached tokens are known.

        A job that this leader never granted was charged by an earlier one, in counters that were restored: its first
        report only sets the mark.
        """
        due = self._config.work(job.num_prompt_tokens - job.num_cached_tokens, job.num_output_tokens)
        if job.num_grants or job.charged:
            self._policy.charge(job.key.tenant, due - job.charged)
        job.charged = due


def _policy(config: QueueConfig) -> Policy:
    match config.policy:
        case QueuePolicy.FIFO:
            return RankedPolicy(FifoRanking(config))
        case QueuePolicy.SJF:
            return RankedPolicy(ShortestFirstRanking(config))
        case QueuePolicy.WEIGHTED_FAIR:
            return WeightedFair(config)
