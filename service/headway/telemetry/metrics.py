"""The metrics of one process: an OpenTelemetry meter whose numbers Prometheus can scrape, and OTLP gets if asked.

No global provider and no global registry: everything hangs on one object that a composition root makes and closes.
"""

from __future__ import annotations

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from headway.telemetry.config import OTLP_TIMEOUT_SECONDS, Address, TelemetryConfig
from headway.telemetry.endpoint import MetricsEndpoint
from headway.telemetry.labels import TenantLabels
from headway.telemetry.process_metrics import ProcessMetrics
from headway.telemetry.queue_metrics import QueueMetrics
from headway.telemetry.worker_metrics import WorkerMetrics

METER_NAME = "headway"


class Metrics:
    """Listens from the start. Raises ``SettingError`` if the address of the endpoint cannot be had."""

    def __init__(self, config: TelemetryConfig, resource: Resource, role: str) -> None:
        registry = CollectorRegistry()
        self._endpoint = MetricsEndpoint(config.metrics_listen, registry)
        readers: list[MetricReader] = [PrometheusMetricReader(scope_info_enabled=False, registry=registry)]
        if config.otlp_endpoint is not None:
            readers.append(_otlp_reader(config.otlp_endpoint, config.otlp_interval_seconds))
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter(METER_NAME)
        self._tenants = TenantLabels(config.max_tenant_labels)
        self.process = ProcessMetrics(self._meter, registry, role)

    @property
    def address(self) -> Address:
        """Where ``/metrics`` really listens."""
        return self._endpoint.address

    def queue(self) -> QueueMetrics:
        """For the queue role; once per process."""
        return QueueMetrics(self._meter, self._tenants)

    def worker(self, model: str) -> WorkerMetrics:
        """For the worker role; once per process."""
        return WorkerMetrics(self._meter, self._tenants, model)

    def close(self) -> None:
        """The last OTLP export, then the port is free."""
        self._endpoint.close()
        self._provider.shutdown()


def _otlp_reader(endpoint: str, interval_seconds: float) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(endpoint=endpoint, timeout=OTLP_TIMEOUT_SECONDS)
    return PeriodicExportingMetricReader(exporter, interval_seconds * 1000)
