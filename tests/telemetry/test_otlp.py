"""Traces and metrics reach a collector over OTLP: a real gRPC server that keeps what it is sent."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from headway.core.job import JobKey
from headway.core.records import GrantToken
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.telemetry import Telemetry
from headway.telemetry.traced import Period, TracedJob


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, requests):
        self._requests = requests

    def Export(self, request, context):
        self._requests.append(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class Measurements(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, requests):
        self._requests = requests

    def Export(self, request, context):
        self._requests.append(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class Collector:
    def __init__(self):
        self.requests = []
        self.server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(self.requests), self.server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Measurements(self.requests), self.server)
        self.endpoint = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def text(self):
        return "\n".join(str(request) for request in self.requests)


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.server.stop(None).wait()


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
