"""Traces and metrics reach a collector over OTLP: a real gRPC server that keeps what it is sent."""

import pytest

from headway.core.job import JobKey
from headway.core.records import GrantToken
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.telemetry import Telemetry
from headway.telemetry.traced import Period, TracedJob
from tests.otlp_collector import Collector


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


def test_what_is_left_is_exported_at_the_end(collector):
    telemetry = Telemetry(TelemetryConfig(otlp_endpoint=collector.endpoint), role="queue", instance="pod-0")
    telemetry.metrics.worker("default").attempt_started("acme")
    job = TracedJob(JobKey("acme", "a1"), "default", stream_sequence=1, arrival_seconds=1.0)
    telemetry.tracer.emit_queue(job, Period.of_seconds(1.0, 2.0), GrantToken(1, 1))
    telemetry.close()
    text = collector.text()
    assert 'name: "queue"' in text
    assert 'name: "headway_attempts"' in text
    assert 'string_value: "headway-queue"' in text
    assert 'string_value: "pod-0"' in text


def test_a_collector_that_is_gone_does_not_stop_a_process_from_ending(collector, caplog):
    collector.server.stop(None).wait()
    telemetry = Telemetry(TelemetryConfig(otlp_endpoint=collector.endpoint), role="queue", instance="pod-0")
    telemetry.metrics.worker("default").attempt_started("acme")
    telemetry.close()
    assert "Failed to export metrics" in caplog.text
