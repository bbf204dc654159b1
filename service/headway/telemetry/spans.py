"""Exports spans whose times and ids are known already, through the OpenTelemetry SDK."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from headway.telemetry.config import OTLP_TIMEOUT_SECONDS
from headway.telemetry.traced import Period
from headway.telemetry.traceparent import TraceParent

TRACER_NAME = "headway"
Attributes = Mapping[str, str | int | float | bool | tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    name: str
    ids: TraceParent
    parent: TraceParent | None
    period: Period
    attributes: Attributes
    links: tuple[TraceParent, ...] = ()
    kind: SpanKind = SpanKind.INTERNAL
    is_error: bool = False


class SpanSink:
    """Sends spans to ``exporter`` at once (tests), else to ``otlp_endpoint`` in the background, else nowhere."""

    def __init__(self, resource: Resource, otlp_endpoint: str | None, exporter: SpanExporter | None = None) -> None:
        self._ids = _ChosenIds()
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
        self.is_on = exporter is not None or otlp_endpoint is not None
        """Whether spans go anywhere: if not, nobody need make them."""
        if exporter is not None:
            self._provider.add_span_processor(SimpleSpanProcessor(exporter))
        elif otlp_endpoint is not None:
            self._provider.add_span_processor(BatchSpanProcessor(_otlp_exporter(otlp_endpoint)))
        self._tracer = self._provider.get_tracer(TRACER_NAME)

    def emit(self, span: FinishedSpan) -> None:
        """Never blocks on the network; a span that is not sampled goes nowhere."""
        if not (self.is_on and span.ids.is_sampled):
            return
        parent = set_span_in_context(NonRecordingSpan(_context(span.parent)), Context()) if span.parent else Context()
        links = [Link(_context(linked)) for linked in span.links]
        with self._ids.chosen(span.ids):
            started = self._tracer.start_span(
                span.name, parent, span.kind, span.attributes, links, start_time=span.period.start
            )
        if span.is_error:
            started.set_status(Status(StatusCode.ERROR))
        started.end(span.period.end)

    def close(self) -> None:
        """Exports what is left; spans emitted later are lost."""
        self._provider.shutdown()


class _ChosenIds(IdGenerator):
    """Gives the next span the ids that were derived for it: the SDK's way to choose them."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._lock = threading.Lock()
        self._ids: TraceParent | None = None

    @contextmanager
    def chosen(self, ids: TraceParent) -> Iterator[None]:
        with self._lock:
            self._ids = ids
            try:
                yield
            finally:
                self._ids = None

    def generate_trace_id(self) -> int:
        return self._ids.trace_id if self._ids else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self._ids.span_id if self._ids else self._random.generate_span_id()


def random_root() -> TraceParent:
    """Ids of a new trace, sampled."""
    ids = RandomIdGenerator()
    return TraceParent(ids.generate_trace_id(), ids.generate_span_id(), is_sampled=True)


def _context(span: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if span.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)


def _otlp_exporter(endpoint: str) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=OTLP_TIMEOUT_SECONDS)
