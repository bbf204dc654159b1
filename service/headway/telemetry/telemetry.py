"""Everything that one process tells about itself, made and closed by its composition root."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter

from headway.telemetry.config import TelemetryConfig
from headway.telemetry.metrics import Metrics
from headway.telemetry.tracing import JobTracer


class Telemetry:
    """Metrics and traces of one process. Two of them in one process share nothing.

    ``instance`` tells processes of one role apart (the pod's name). Raises ``SettingError`` if the metrics address
    cannot be had.
    """

    def __init__(
        self, config: TelemetryConfig, role: str, instance: str, span_exporter: SpanExporter | None = None
    ) -> None:
        resource = Resource.create({"service.name": f"headway-{role}", "service.instance.id": instance})
        self.metrics = Metrics(config, resource, role)
        self.tracer = JobTracer(config, resource, span_exporter)

    def close(self) -> None:
        """Exports what is left, then frees the port. Blocks for seconds if the collector does not answer."""
        self.tracer.close()
        self.metrics.close()
