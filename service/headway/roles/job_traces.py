"""What the queue leader tells about each job: its spans and how long it waited."""

from __future__ import annotations

from headway.core.job import FinishReason
from headway.core.lease_messages import Grant
from headway.core.outstanding import OutstandingJob
from headway.roles.wall_clock import WallClock
from headway.telemetry.queue_metrics import QueueMetrics
from headway.telemetry.traced import Period, TracedJob
from headway.telemetry.tracing import JobTracer


class LeaderTraces:
    """``submit`` and ``queue`` spans, and the histogram of queueing delay."""

    def __init__(self, tracer: JobTracer, metrics: QueueMetrics, clock: WallClock) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._clock = clock

    def granted(self, outstanding: OutstandingJob, grant: Grant) -> str:
        """The traceparent that the grant carries."""
        job = _traced(outstanding)
        self._metrics.granted(outstanding.model, grant.key.tenant, grant.queue_seconds)
        waited = Period.of_seconds(grant.arrival_seconds, grant.arrival_seconds + grant.queue_seconds)
        self._tracer.emit_queue(job, waited, grant.token)
        return self._tracer.start_root(job)

    def ended(self, outstanding: OutstandingJob, reason: FinishReason) -> None:
        job = _traced(outstanding)
        self._tracer.emit_submit(job, Period.of_seconds(job.arrival_seconds, self._clock.now()), reason)


def _traced(outstanding: OutstandingJob) -> TracedJob:
    job = outstanding.job
    return TracedJob(job.key, outstanding.model, job.stream_sequence, job.arrival_seconds, job.traceparent)
