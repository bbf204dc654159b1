"""The queue leader's metrics: what waits, what is leased, how many workers that asks for."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.metrics import Meter

from headway.core.job import FinishReason
from headway.core.status import ModelStatus, QueueStatus
from headway.telemetry.gauges import LatestValues, Point
from headway.telemetry.labels import TenantLabels

WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
GRANT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class QueueMetrics:
    """Only the leader observes; a follower that did would count every job twice."""

    def __init__(self, meter: Meter, tenants: TenantLabels) -> None:
        self._tenants = tenants
        self._latest = latest = LatestValues(meter)
        latest.add_gauge("headway_waiting_jobs", "Jobs that wait for a worker")
        latest.add_gauge("headway_tenant_waiting_jobs", "Jobs that wait for a worker, by tenant")
        latest.add_gauge("headway_outstanding_jobs", "Jobs that wait or are leased: what to scale on")
        latest.add_gauge("headway_backlog_tokens", "Tokens, prompt and predicted output, of the jobs that wait")
        latest.add_gauge("headway_oldest_wait_seconds", "How long the oldest waiting job has waited", "s")
        latest.add_gauge("headway_workers_needed", "Workers that would run every outstanding job at once")
        latest.add_gauge("headway_connected_workers", "Workers that are connected to this leader")
        latest.add_gauge("headway_leader_epoch", "Number of this process's leadership; only a leader has one")
        latest.add_counter("headway_grants", "Jobs granted to workers")
        latest.add_counter("headway_lost_attempts", "Attempts that ended with the loss of their worker")
        self._ended_jobs = meter.create_counter(
            "headway_ended_jobs", "1", "Jobs whose end this process wrote, by finish reason"
        )
        self._dead_letters = meter.create_counter(
            "headway_dead_letters", "", "Jobs that were put into HEADWAY_DEAD, given up or not even readable"
        )
        self._queue_seconds = meter.create_histogram(
            "headway_queue_seconds",
            "s",
            "From a job's arrival, or its return from a worker, to its grant",
            explicit_bucket_boundaries_advisory=WAIT_BUCKETS,
        )
        self._grant_seconds = meter.create_histogram(
            "headway_grant_seconds",
            "s",
            "From when a waiting job and a worker that asks are both there, to the grant",
            explicit_bucket_boundaries_advisory=GRANT_BUCKETS,
        )

    def observe(self, status: QueueStatus) -> None:
        """The state now; it replaces the state before."""
        for model in status.models:
            self._dead_letters.add(0, {"model": model.model})
        points = [point for model in status.models for point in self._points(status, model)]
        self._latest.replace([Point("headway_leader_epoch", status.epoch, {}), *points])

    def granted(self, model: str, tenant: str, queue_seconds: float) -> None:
        """A job went to a worker after it had waited this long."""
        self._queue_seconds.record(queue_seconds, {"model": model, "tenant": self._tenants.label(tenant)})

    def answered(self, model: str, grant_seconds: float) -> None:
        """A grant went out so long after both were there: its job, waiting, and its worker, asking."""
        self._grant_seconds.record(grant_seconds, {"model": model})

    def ended(self, model: str, tenant: str, reason: FinishReason) -> None:
        """The leader wrote a job's ``end`` itself: rejected, cancelled or expired before any worker ran it."""
        labels = {"model": model, "tenant": self._tenants.label(tenant), "finish_reason": reason.value}
        self._ended_jobs.add(1, labels)

    def buried(self, model: str) -> None:
        """A dead letter was stored."""
        self._dead_letters.add(1, {"model": model})

    def step_down(self) -> None:
        """Not the leader any more: nothing is known here."""
        self._latest.clear()

    def _points(self, status: QueueStatus, model: ModelStatus) -> Iterator[Point]:
        labels = {"model": model.model}
        workers = sum(worker.model == model.model and worker.is_connected for worker in status.workers)
        yield Point("headway_waiting_jobs", model.num_waiting_jobs, labels)
        yield Point("headway_outstanding_jobs", model.num_outstanding_jobs, labels)
        yield Point("headway_backlog_tokens", model.queue.num_backlog_tokens, labels)
        yield Point("headway_oldest_wait_seconds", model.queue.oldest_wait_seconds, labels)
        yield Point("headway_workers_needed", model.workers_needed, labels)
        yield Point("headway_connected_workers", workers, labels)
        yield Point("headway_grants", model.num_grants_total, labels)
        yield Point("headway_lost_attempts", model.num_lost_attempts_total, labels)
        for tenant, count in self._tenants.sums(model.queue.num_waiting_by_tenant).items():
            yield Point("headway_tenant_waiting_jobs", count, {**labels, "tenant": tenant})
