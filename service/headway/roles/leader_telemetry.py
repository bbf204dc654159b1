"""What the queue leader tells about each job: its spans and how long it waited.

Two times of a grant: the *wait* is from the job's arrival, or from when it came back from a worker, to the decision;
the *grant time* is what the leader itself takes, from when a waiting job and a worker that asks are both there until
the grant goes out. A job may be old, and so may the demand of an idle worker: the later of the two counts.
"""

from __future__ import annotations

from headway.core.job import FinishReason, JobKey
from headway.core.lease_messages import Grant
from headway.core.outstanding import OutstandingJob
from headway.roles.wall_clock import WallClock
from headway.telemetry.queue_metrics import QueueMetrics
from headway.telemetry.traced import Period, TracedJob
from headway.telemetry.tracing import JobTracer


class LeaderTelemetry:
    """``submit`` and ``queue`` spans, the histogram of queueing delay, and the ends that the leader writes."""

    def __init__(self, tracer: JobTracer, metrics: QueueMetrics, clock: WallClock) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._clock = clock
        self._asked_at: dict[int, float] = {}
        """By stream: when its worker's newest demand came, which all grants answer until there is another."""

    def asked(self, stream: int) -> None:
        """A demand came, before anything is granted for it."""
        self._asked_at[stream] = self._clock.now()

    def disconnected(self, stream: int) -> None:
        self._asked_at.pop(stream, None)

    def granted(self, stream: int, outstanding: OutstandingJob, grant: Grant) -> str:
        """The traceparent that the grant carries."""
        job, waiting_since = _traced(outstanding), outstanding.job.waiting_since
        decided_at = grant.arrival_seconds + grant.queue_seconds
        waited = Period.of_seconds(waiting_since, decided_at)
        # While the payload was fetched the worker may have asked again, which is not what this grant answers.
        asked_at = min(decided_at, self._asked_at.get(stream, decided_at))
        both_there_at = max(waiting_since, asked_at)
        self._metrics.answered(outstanding.model, max(0.0, self._clock.now() - both_there_at))
        self._metrics.granted(outstanding.model, grant.key.tenant, waited.seconds)
        self._tracer.emit_queue(job, waited, grant.token)
        return self._tracer.start_root(job)

    def ended(self, outstanding: OutstandingJob, reason: FinishReason) -> None:
        job = _traced(outstanding)
        self._tracer.emit_submit(job, Period.of_seconds(job.arrival_seconds, self._clock.now()), reason)

    def wrote_end(self, model: str, key: JobKey, reason: FinishReason) -> None:
        """The leader did, because no worker ran the job."""
        self._metrics.ended(model, key.tenant, reason)

    def buried(self, model: str) -> None:
        """A dead letter of this model is stored."""
        self._metrics.buried(model)


def _traced(outstanding: OutstandingJob) -> TracedJob:
    job = outstanding.job
    return TracedJob(job.key, outstanding.model, job.stream_sequence, job.arrival_seconds, job.traceparent)
