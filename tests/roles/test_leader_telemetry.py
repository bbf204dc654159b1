"""What a grant is said to have taken: the job's wait, and the leader's own part of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headway.core.job import JobKey
from headway.core.lease_messages import Grant
from headway.core.outstanding import OutstandingJob
from headway.core.queued_job import QueuedJob
from headway.core.records import GrantToken
from headway.roles.leader_telemetry import LeaderTelemetry
from headway.roles.wall_clock import WallClock
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.labels import TenantLabels
from headway.telemetry.queue_metrics import QueueMetrics
from headway.telemetry.tracing import JobTracer

WORKER, OTHER = 1, 2
"""Streams."""


@dataclass
class Clock(WallClock):
    seconds: float = 1000.0

    def now(self) -> float:
        return self.seconds


@dataclass
class Desk:
    """A leader's telemetry, on a clock that the test sets."""

    clock: Clock = field(default_factory=Clock)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    num_grants: int = 0

    def __post_init__(self) -> None:
        metrics = QueueMetrics(MeterProvider([self.reader]).get_meter("tests"), TenantLabels(100))
        tracer = JobTracer(TelemetryConfig(), Resource.create({}), self.spans)
        self.telemetry = LeaderTelemetry(tracer, metrics, self.clock)

    def ask(self, at: float, stream: int = WORKER) -> None:
        self.clock.seconds = at
        self.telemetry.asked(stream)

    def grant(self, job: QueuedJob, decided_at: float, sent_at: float | None = None, stream: int = WORKER) -> None:
        self.num_grants += 1
        self.clock.seconds = decided_at if sent_at is None else sent_at
        token = GrantToken(1, self.num_grants)
        waited = decided_at - job.arrival_seconds
        grant = Grant(job.key, token, job.stream_sequence, b"", job.arrival_seconds, waited)
        self.telemetry.granted(stream, OutstandingJob("default", job), grant)

    def seconds(self, name: str) -> list[float]:
        """What a histogram tells of what was recorded: number, sum, least, greatest."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
        (points,) = [metric.data.data_points for metric in metrics if metric.name == name]
        (point,) = points
        return [point.count, point.sum, point.min, point.max]

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Of the ``queue`` spans: begin and end."""
        spans = self.spans.get_finished_spans()
        return [((span.start_time or 0) / 1e9, (span.end_time or 0) / 1e9) for span in spans if span.name == "queue"]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def job(name: str = "a", arrival: float = 1000.0, came_back_at: float | None = None) -> QueuedJob:
    return QueuedJob(JobKey("acme", name), 1, arrival, 1, 1, came_back_at=came_back_at)


def test_every_grant_of_a_demand_takes_from_the_demand_on(desk: Desk) -> None:
    """Jobs wait, and a worker with room for three asks: payloads that had to be fetched came one after the other."""
    desk.ask(at=1060.0)
    for number, sent_at in enumerate((1060.5, 1061.0, 1061.5)):
        desk.grant(job(str(number)), decided_at=1060.0, sent_at=sent_at)
    assert desk.seconds("headway_grant_seconds") == [3, 3.0, 0.5, 1.5]


def test_a_job_that_comes_to_an_idle_worker_takes_from_its_arrival_on(desk: Desk) -> None:
    desk.ask(at=1000.0)
    for arrival in (1100.0, 1200.0):
        desk.grant(job(arrival=arrival), decided_at=arrival + 0.25)
    assert desk.seconds("headway_grant_seconds") == [2, 0.5, 0.25, 0.25]


def test_what_did_not_fit_an_earlier_demand_takes_from_the_one_that_it_fits(desk: Desk) -> None:
    """A worker whose pages are full asks, too, and again at nearly every step: that is no slowness of the leader."""
    desk.ask(at=1001.0)
    desk.ask(at=1060.0)
    desk.grant(job(), decided_at=1060.0, sent_at=1060.5)
    assert desk.seconds("headway_grant_seconds") == [1, 0.5, 0.5, 0.5]


def test_a_demand_that_came_while_the_payload_was_fetched_hides_none_of_that_time(desk: Desk) -> None:
    desk.ask(at=1060.0)
    desk.ask(at=1062.0)
    desk.grant(job(), decided_at=1060.0, sent_at=1063.0)
    assert desk.seconds("headway_grant_seconds") == [1, 3.0, 3.0, 3.0]


def test_the_demand_of_one_worker_says_nothing_about_another(desk: Desk) -> None:
    desk.ask(at=1050.0, stream=OTHER)
    desk.ask(at=1060.0)
    desk.grant(job(), decided_at=1060.0, sent_at=1061.0)
    assert desk.seconds("headway_grant_seconds") == [1, 1.0, 1.0, 1.0]


def test_a_stream_that_is_gone_leaves_nothing_to_a_later_grant(desk: Desk) -> None:
    desk.ask(at=1050.0)
    desk.telemetry.disconnected(WORKER)
    desk.grant(job(), decided_at=1060.0, sent_at=1061.0)
    assert desk.seconds("headway_grant_seconds") == [1, 1.0, 1.0, 1.0]


def test_the_first_wait_is_from_the_arrival_and_a_later_one_from_the_return(desk: Desk) -> None:
    desk.ask(at=1000.0)
    desk.grant(job(), decided_at=1004.0)
    desk.grant(job(came_back_at=1600.0), decided_at=1602.0)
    assert desk.waits == [(1000.0, 1004.0), (1600.0, 1602.0)]
    assert desk.seconds("headway_queue_seconds") == [2, 6.0, 2.0, 4.0]
    assert desk.seconds("headway_grant_seconds")[3] == 4.0, "the 600 seconds at a worker are nobody's wait"


def test_a_clock_behind_the_brokers_makes_no_negative_times(desk: Desk) -> None:
    desk.ask(at=999.0)
    desk.grant(job(), decided_at=999.0)
    assert desk.waits == [(1000.0, 1000.0)]
    assert desk.seconds("headway_grant_seconds") == [1, 0.0, 0.0, 0.0]
