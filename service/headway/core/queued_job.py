"""What the queue knows of a job, and of the worker that asks for one.

A model's queue holds every job of its stream, so a `QueuedJob` is lean: the numbers that order and charge it, and
where to find its payload again. The object stays the same from the intake to the end, through every grant and
return: that is how a returned job keeps its place and how no token of it is charged twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from headway.core.errors import BrokerError
from headway.core.job import JobKey
from headway.core.ordered import Rank


@dataclass(slots=True, eq=False)
class QueuedJob:
    """One job of the stream. Times are seconds on the clock that ``now`` is taken from."""

    key: JobKey
    stream_sequence: int
    arrival_seconds: float
    """The broker's timestamp."""
    num_prompt_tokens: int
    """Estimated for a text, until a worker has reported the count."""
    max_tokens: int
    priority: int = 0
    """As the client wrote it; the queue applies the tenant's own limit."""
    expected_tokens: int | None = None
    expires_at: float | None = None
    payload_hash: str = ""
    traceparent: str | None = None
    num_bytes: int = 0
    """Of the payload, whether it is held here or not."""
    payload: bytes | None = None
    """None: dropped beyond the byte budget. Fetch it by ``stream_sequence``, then `attach` it."""

    num_bypasses: int = 0
    """How often a worker that could hold it took another job because it did not fit at that time."""
    num_lost_attempts: int = 0
    came_back_at: float | None = None
    """When a worker last gave it up; None: it has not been granted yet, as far as this leader knows."""
    num_grants: int = 0
    """By this leader. A job reported without one was granted by an earlier leader, which charged it."""
    num_cached_tokens: int = 0
    """High-water mark of the prompt tokens that were found in shared pages."""
    num_output_tokens: int = 0
    """High-water mark over all attempts."""
    num_predicted_tokens: int | None = None
    """Of output; set when the job is first queued, and kept, so that its place and the totals hold still."""
    charged: float = 0.0
    """Weighted tokens that its tenant has been charged for it so far."""
    rank: Rank | None = None
    """Its place; set when the job is first queued, and kept."""

    @property
    def waiting_since(self) -> float:
        return self.arrival_seconds if self.came_back_at is None else self.came_back_at

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values a worker must compute before the next output token."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_backlog_tokens(self) -> int:
        """Prompt and output tokens that it will hold at its end, as far as can be told."""
        return self.num_prompt_tokens + max(self.num_predicted_tokens or 0, self.num_output_tokens)

    @property
    def num_payload_bytes(self) -> int:
        return 0 if self.payload is None else len(self.payload)

    def num_pages(self, page_size: int) -> int:
        """Pages that it will hold at its end, as far as can be told."""
        return -(-self.num_backlog_tokens // page_size)

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def attach(self, payload: bytes) -> None:
        """Puts a fetched payload back.

        Raises ``BrokerError`` if it is not the one that was queued.
        """
        if self.payload_hash and hashlib.sha256(payload).hexdigest() != self.payload_hash:
            raise BrokerError(
                f"message {self.stream_sequence} of the job stream is no longer the payload of {self.key}"
            )
        self.payload = payload


@dataclass(frozen=True, slots=True)
class WorkerRoom:
    """What one worker could take now, and what it could hold if it were empty."""

    worker: str
    num_pages: int
    """Free for new jobs now. A worker without any job must offer all that it would ever offer."""
    page_size: int
    num_pages_total: int

    @property
    def max_tokens(self) -> int:
        """The largest `QueuedJob.num_tokens` that fits now: ceil((tokens + 1) / page size) pages are needed."""
        return self.num_pages * self.page_size - 1

    @property
    def max_tokens_once_empty(self) -> int:
        return max(self.num_pages, self.num_pages_total) * self.page_size - 1

    def fits(self, job: QueuedJob) -> bool:
        return job.num_tokens <= self.max_tokens
