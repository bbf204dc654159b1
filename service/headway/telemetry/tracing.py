"""One trace per job, across processes: spans are emitted at the end, from recorded times, and never per token.

    submit   the leader: from the broker's timestamp to the job's end (child of the client's span, if it sent one)
    ├── queue     the leader, once per grant: from the job's arrival, or its return from a worker, to the grant
    ├── prefill   the worker, once per attempt: from the grant to the first token
    └── decode    the worker, once per attempt: from the first token to the last

Ids are derived from the job's identity instead of drawn: a new leader goes on with the trace of the old one, and an
attempt links to the one before it without having heard of it.
"""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import SpanKind

from headway.core.job import FinishReason
from headway.core.records import GrantToken, Usage
from headway.core.stats import StepStats
from headway.telemetry.config import TelemetryConfig
from headway.telemetry.spans import FinishedSpan, SpanSink, random_root
from headway.telemetry.traced import NANOSECONDS, Period, TracedAttempt, TracedJob
from headway.telemetry.traceparent import TraceParent, parse_traceparent

SUBMIT, QUEUE, PREFILL, DECODE, STEP = "submit", "queue", "prefill", "decode", "step"
ID_SPACE = 2**64


class JobTracer:
    """Emits the spans of jobs and of sampled steps. ``exporter`` is for tests (`spans.SpanSink`)."""

    def __init__(self, config: TelemetryConfig, resource: Resource, exporter: SpanExporter | None = None) -> None:
        self._config = config
        self._sink = SpanSink(resource, config.otlp_endpoint, exporter)

    def start_root(self, job: TracedJob) -> str:
        """The traceparent of the job's ``submit`` span, for its grants; the same whenever and wherever it is asked."""
        return str(self._submit(job))

    def emit_submit(self, job: TracedJob, period: Period, reason: FinishReason, usage: Usage | None = None) -> None:
        """At the leader, once the ``end`` record is stored."""
        if not self._sink.is_on:
            return
        span = FinishedSpan(
            SUBMIT,
            ids=self._submit(job),
            parent=parse_traceparent(job.traceparent),
            period=period,
            attributes={
                **_job_attributes(job),
                **(_usage_attributes(usage) if usage else {}),
                "gen_ai.response.finish_reasons": (reason.value,),
            },
            kind=SpanKind.SERVER,
            is_error=reason is FinishReason.ERROR,
        )
        self._sink.emit(span)

    def emit_queue(self, job: TracedJob, period: Period, grant: GrantToken) -> None:
        """At the leader, once per grant."""
        if not self._sink.is_on:
            return
        submit = self._submit(job)
        ids = _sibling(submit, job.span_id(f"{QUEUE} {_grant_name(grant)}"))
        attributes = {**_job_attributes(job), "headway.grant": _grant_name(grant)}
        self._sink.emit(FinishedSpan(QUEUE, ids, submit, period, attributes))

    def emit_attempt(self, job: TracedJob, attempt: TracedAttempt) -> None:
        """At the worker: ``prefill`` and ``decode``; ``job.traceparent`` is what the grant carried."""
        if not self._sink.is_on:
            return
        submit = parse_traceparent(job.traceparent) or self._submit(job)
        before = _sibling(submit, job.span_id(f"{PREFILL} {attempt.number - 1}"))
        attributes: dict[str, str | int] = {**_job_attributes(job), **self._attempt_attributes(attempt)}
        for name, period in ((PREFILL, attempt.prefill), (DECODE, attempt.decode)):
            if period is None:
                continue
            span = FinishedSpan(
                name,
                ids=_sibling(submit, job.span_id(f"{name} {attempt.number}")),
                parent=submit,
                period=period,
                attributes=attributes,
                links=(before,) if attempt.number > 1 else (),
                is_error=attempt.lost is not None or attempt.finish_reason is FinishReason.ERROR,
            )
            self._sink.emit(span)

    def emit_step(self, model: str, step: StepStats, end_nanoseconds: int) -> None:
        """A trace of its own for every n-th step, n = 1 / ``step_span_ratio``."""
        ratio = self._config.step_span_ratio
        if ratio == 0.0 or step.number % round(1 / ratio) != 0:
            return
        attributes: dict[str, str | int] = {
            "gen_ai.request.model": model,
            "headway.step": step.number,
            "headway.num_prefill_tokens": step.num_prefill_tokens,
            "headway.num_decode_tokens": step.num_decode_tokens,
            "headway.num_sequences": step.num_sequences,
        }
        period = Period(end_nanoseconds - round(step.seconds * NANOSECONDS), end_nanoseconds)
        self._sink.emit(FinishedSpan(STEP, random_root(), None, period, attributes))

    def close(self) -> None:
        """Exports what is left; spans emitted later are lost."""
        self._sink.close()

    def _submit(self, job: TracedJob) -> TraceParent:
        """In the client's trace if it named one, following its choice of sampling."""
        client = parse_traceparent(job.traceparent)
        if client is not None:
            return _sibling(client, job.span_id(SUBMIT))
        trace_id = job.trace_id
        is_sampled = trace_id % ID_SPACE < self._config.trace_sampling_ratio * ID_SPACE
        return TraceParent(trace_id, job.span_id(SUBMIT), is_sampled)

    def _attempt_attributes(self, attempt: TracedAttempt) -> dict[str, str | int]:
        attributes: dict[str, str | int] = {
            "headway.attempt": attempt.number,
            "headway.grant": _grant_name(attempt.grant),
            "headway.worker": attempt.worker,
            **_usage_attributes(attempt.usage),
        }
        if attempt.lost is not None:
            attributes["headway.lost"] = attempt.lost
        if self._config.log_prompts:
            texts = {"headway.prompt": attempt.prompt, "headway.output": attempt.output}
            attributes |= {name: text for name, text in texts.items() if text is not None}
        return attributes


def _job_attributes(job: TracedJob) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "headway",
        "gen_ai.request.model": job.model,
        "headway.tenant": job.key.tenant,
        "headway.job.id": job.key.id,
    }


def _usage_attributes(usage: Usage) -> dict[str, str | int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "headway.cached_tokens": usage.cached_tokens,
    }


def _grant_name(grant: GrantToken) -> str:
    return f"{grant.epoch}-{grant.number}"


def _sibling(of: TraceParent, span_id: int) -> TraceParent:
    return TraceParent(of.trace_id, span_id, of.is_sampled)
