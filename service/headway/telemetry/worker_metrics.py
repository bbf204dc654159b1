"""A worker's metrics: steps, pages, sequences, and each job's times under the names of the GenAI conventions.

Source of the ``gen_ai.*`` names and buckets: OpenTelemetry semantic conventions for generative AI metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.metrics import Meter

from headway.core.job import FinishReason
from headway.core.records import End
from headway.core.stats import SchedulerStats, StepStats
from headway.telemetry.gauges import LatestValues, Point
from headway.telemetry.labels import TenantLabels

STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)
ERROR_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
FIRST_TOKEN_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
PER_TOKEN_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 300, 900)
COMPLETED = (FinishReason.STOP, FinishReason.LENGTH)


class WorkerMetrics:
    """The metrics of one worker, which serves one model."""

    def __init__(self, meter: Meter, tenants: TenantLabels, model: str) -> None:
        self._model = {"model": model}
        self._tenants = tenants
        self._add_gauges(LatestValues(meter))
        self._add_counters(meter)
        self._add_step_histograms(meter)
        self._add_job_histograms(meter)

    def observe_scheduler(self, stats: SchedulerStats) -> None:
        """The engine's state after a step; it replaces the state before."""
        self._latest.replace(self._points(stats))

    def observe_step(self, step: StepStats) -> None:
        self._step_seconds.record(step.seconds, {**self._model, "phase": _phase(step)})
        self._step_sequences.record(step.num_sequences, self._model)
        self._schedule_seconds.record(step.schedule_seconds, self._model)
        if step.prefill_budget is not None:
            self._prefill_budget.record(step.prefill_budget, self._model)
        if step.predicted_seconds is not None:
            self._prediction_error.record(abs(step.seconds - step.predicted_seconds), self._model)
        for phase, num_tokens in (("prefill", step.num_prefill_tokens), ("decode", step.num_decode_tokens)):
            if num_tokens:
                self._step_tokens.record(num_tokens, {**self._model, "phase": phase})

    def attempt_started(self, tenant: str) -> None:
        """An ``attempt`` record was stored."""
        self._attempts.add(1, self._of_tenant(tenant))

    def job_ended(self, tenant: str, end: End) -> None:
        """An ``end`` record was stored."""
        labels = self._of_tenant(tenant)
        self._ended_jobs.add(1, {**labels, "finish_reason": end.finish_reason.value})
        self._output_tokens.add(end.usage.completion_tokens, labels)
        self._prompt_tokens.add(end.usage.prompt_tokens, labels)
        self._cached_tokens.add(end.usage.cached_tokens, labels)
        self._record_times(labels, end)

    def engine_gone(self) -> None:
        """It died, hung or could not start. No engine, no numbers: pages and sequences are unknown until the next one
        reports."""
        self._engine_failures.add(1, self._model)
        self._latest.clear()

    def _record_times(self, labels: dict[str, str], end: End) -> None:
        """The conventions count time to first token and per output token for completed jobs only."""
        times, num_tokens = end.timings, end.usage.completion_tokens
        labels = {**labels, **self._gen_ai_labels(end)}
        to_first = _sum(times.queue_seconds, times.prefill_seconds)
        if to_first is not None:
            self._duration.record(to_first + (times.decode_seconds or 0.0), labels)
        if end.finish_reason not in COMPLETED or to_first is None:
            return
        self._first_token.record(to_first, labels)
        if times.decode_seconds is not None and num_tokens > 1:
            self._per_token.record(times.decode_seconds / (num_tokens - 1), labels)

    def _of_tenant(self, tenant: str) -> dict[str, str]:
        return {**self._model, "tenant": self._tenants.label(tenant)}

    def _gen_ai_labels(self, end: End) -> dict[str, str]:
        labels = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "headway",
            "gen_ai.request.model": self._model["model"],
        }
        return {**labels, "error.type": end.error.code} if end.error else labels

    def _points(self, stats: SchedulerStats) -> Iterator[Point]:
        pages, labels = stats.pages, self._model
        yield Point("headway_running_sequences", stats.num_running, labels)
        yield Point("headway_waiting_sequences", stats.num_waiting, labels)
        for state, count in (("free", pages.num_free), ("cached", pages.num_cached), ("used", pages.num_used)):
            yield Point("headway_pages", count, {**labels, "state": state})
        yield Point("headway_preemptions", stats.num_preemptions_total, labels)
        yield Point("headway_recomputed_tokens", stats.num_recomputed_tokens_total, labels)
        yield Point("headway_busy_slots", stats.num_busy_slots_total, labels)
        yield Point("headway_slots", stats.num_slots_total, labels)

    def _add_gauges(self, latest: LatestValues) -> None:
        self._latest = latest
        latest.add_gauge("headway_running_sequences", "Sequences that hold pages and take part in steps")
        latest.add_gauge("headway_waiting_sequences", "Sequences in the engine that are not admitted yet")
        latest.add_gauge("headway_pages", "KV pages by state: free, cached (shareable, unused) or used")
        latest.add_counter("headway_preemptions", "Times a running sequence lost its pages")
        latest.add_counter("headway_recomputed_tokens", "Tokens computed again after a preemption")
        latest.add_counter("headway_busy_slots", "Batch slots that computed something, summed over steps")
        latest.add_counter("headway_slots", "Batch slots there were, summed over steps with work")

    def _add_counters(self, meter: Meter) -> None:
        self._engine_failures = meter.create_counter(
            "headway_engine_failures", "", "Engine processes that died, hung or failed to start"
        )
        self._engine_failures.add(0, self._model)  # there from the start, so that an increase from 0 to 1 is one
        self._attempts = meter.create_counter("headway_attempts", "", "Attempts that were started")
        self._ended_jobs = meter.create_counter("headway_ended_jobs", "", "Jobs that ended, by finish reason")
        self._prompt_tokens = meter.create_counter("headway_prompt_tokens", "", "Prompt tokens of ended jobs")
        self._cached_tokens = meter.create_counter("headway_cached_tokens", "", "Prompt tokens found in shared pages")
        self._output_tokens = meter.create_counter("headway_output_tokens", "", "Output tokens of ended jobs")

    def _add_step_histograms(self, meter: Meter) -> None:
        add = meter.create_histogram
        self._step_seconds = add(
            "headway_step_seconds", "s", "Time of one step", explicit_bucket_boundaries_advisory=STEP_BUCKETS
        )
        self._schedule_seconds = add(
            "headway_schedule_seconds", "s", "Time to decide one step", explicit_bucket_boundaries_advisory=STEP_BUCKETS
        )
        self._step_tokens = add(
            "headway_step_tokens", "", "Tokens of one step, by phase", explicit_bucket_boundaries_advisory=COUNT_BUCKETS
        )
        self._step_sequences = add(
            "headway_step_sequences", "", "Sequences of one step", explicit_bucket_boundaries_advisory=COUNT_BUCKETS
        )

        self._prefill_budget = add(
            "headway_prefill_budget_tokens",
            "",
            "Prompt tokens that the decodes of one step left room for under tpot_target",
            explicit_bucket_boundaries_advisory=COUNT_BUCKETS,
        )
        self._prediction_error = add(
            "headway_step_prediction_error_seconds",
            "s",
            "How far one step's time was from its prediction, either way; with tpot_target",
            explicit_bucket_boundaries_advisory=ERROR_BUCKETS,
        )

    def _add_job_histograms(self, meter: Meter) -> None:
        add = meter.create_histogram
        self._first_token = add(
            "gen_ai.server.time_to_first_token",
            "s",
            "From a job's arrival to its first token",
            explicit_bucket_boundaries_advisory=FIRST_TOKEN_BUCKETS,
        )
        self._per_token = add(
            "gen_ai.server.time_per_output_token",
            "s",
            "Time per output token after the first",
            explicit_bucket_boundaries_advisory=PER_TOKEN_BUCKETS,
        )
        self._duration = add(
            "gen_ai.server.request.duration",
            "s",
            "From a job's arrival to its end",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )


def _phase(step: StepStats) -> str:
    if step.num_prefill_tokens and step.num_decode_tokens:
        return "mixed"
    return "prefill" if step.num_prefill_tokens else "decode"


def _sum(*parts: float | None) -> float | None:
    """None if a part is: a job that never got its first token has no time to it."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
