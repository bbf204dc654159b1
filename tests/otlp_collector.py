"""A small OpenTelemetry collector: a real OTLP gRPC server that keeps what processes send it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

NANOSECONDS = 1e9


@dataclass(frozen=True)
class CollectedSpan:
    service: str
    name: str
    trace_id: str
    """Like the other ids in hex."""
    span_id: str
    parent_id: str
    """Empty for a root."""
    links: tuple[str, ...]
    start: float
    """Seconds since the epoch, like ``end``."""
    end: float
    attributes: Mapping[str, Any]
    is_error: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, keep: Callable[[Any], None]) -> None:
        self._keep = keep

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._keep(request)
        return trace_service_pb2.ExportTraceServiceResponse()


class _Measurements(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, keep: Callable[[Any], None]) -> None:
        self._keep = keep

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._keep(request)
        return metrics_service_pb2.ExportMetricsServiceResponse()


class Collector:
    """Serves inside ``with``, on a free port."""

    def __init__(self) -> None:
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Traces(self.traces.append), self.server)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(_Measurements(self.metrics.append), self.server)
        self.endpoint = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(None).wait()

    @property
    def spans(self) -> list[CollectedSpan]:
        """By their beginning."""
        found = [
            _collected(_attributes(resource.resource.attributes).get("service.name", ""), span)
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start)

    def text(self) -> str:
        """Everything, as protobuf prints it."""
        return "\n".join(str(request) for request in [*self.traces, *self.metrics])


def _collected(service: str, span: Span) -> CollectedSpan:
    return CollectedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        start=span.start_time_unix_nano / NANOSECONDS,
        end=span.end_time_unix_nano / NANOSECONDS,
        attributes=_attributes(span.attributes),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)
