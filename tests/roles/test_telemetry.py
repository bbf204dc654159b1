"""What a job's trace and the processes' metrics say, read back as an operator's tools would."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headway.roles.local import LocalRole

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]

TRACE_ID, CLIENT_SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NAMES = ("submit", "queue", "prefill", "decode")
CLOCK_NANOSECONDS = 2_000_000
"""Allowance for reading two clocks of one machine one after the other, and for the broker's timestamp."""


async def spans_of(spans: InMemorySpanExporter, job_id: str, eventually: Eventually) -> dict[str, ReadableSpan]:
    def of_job() -> dict[str, ReadableSpan]:
        finished = spans.get_finished_spans()
        return {span.name: span for span in finished if (span.attributes or {}).get("headway.job.id") == job_id}

    await eventually(lambda: set(NAMES) <= set(of_job()))
    return of_job()


def duration(span: ReadableSpan) -> int:
    return (span.end_time or 0) - (span.start_time or 0)


async def test_one_trace_explains_the_whole_duration_of_a_job(
    wire: Any, tenant: str, job: Job, spans: InMemorySpanExporter, eventually: Eventually
) -> None:
    headers = {"Traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN_ID}-01"}  # a capital, as some proxies write it
    await wire.publish(tenant, job(id="traced", max_tokens=50), headers=headers)
    await wire.ended(tenant, "traced")
    traced = await spans_of(spans, "traced", eventually)
    submit, queue, prefill, decode = (traced[name] for name in NAMES)

    assert {f"{span.context.trace_id:032x}" for span in traced.values()} == {TRACE_ID}
    assert f"{submit.parent.span_id:016x}" == CLIENT_SPAN_ID
    for span in (queue, prefill, decode):
        assert span.parent.span_id == submit.context.span_id

    assert queue.start_time == submit.start_time
    assert queue.end_time <= prefill.start_time + CLOCK_NANOSECONDS
    assert abs(prefill.end_time - decode.start_time) <= CLOCK_NANOSECONDS
    assert decode.end_time <= submit.end_time + CLOCK_NANOSECONDS
    assert duration(queue) + duration(prefill) + duration(decode) <= duration(submit) + CLOCK_NANOSECONDS
    unexplained = (prefill.start_time - queue.end_time) + (submit.end_time - decode.end_time)
    explained = duration(queue) + duration(prefill) + duration(decode)
    assert abs(duration(submit) - explained - unexplained) <= 2 * CLOCK_NANOSECONDS, (
        "nothing but the way of two messages"
    )


async def test_the_timings_of_a_job_are_those_of_its_trace(
    wire: Any, tenant: str, spans: InMemorySpanExporter, eventually: Eventually
) -> None:
    log = await wire.run(tenant, f"timed-{tenant}")
    traced = await spans_of(spans, f"timed-{tenant}", eventually)
    for name in ("queue", "prefill", "decode"):
        seconds = log.end["timings"][f"{name}_seconds"]
        assert seconds == pytest.approx(duration(traced[name]) / 1e9, abs=0.001)


async def test_prompts_and_outputs_are_in_no_span(
    wire: Any, tenant: str, spans: InMemorySpanExporter, eventually: Eventually
) -> None:
    log = await wire.run(tenant, f"secret-{tenant}", prompt="confidential")
    traced = await spans_of(spans, f"secret-{tenant}", eventually)
    told = " ".join(span.to_json() for span in traced.values())
    assert "confidential" not in told
    assert log.text not in told


async def scrape(address: object) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            return str(response.read(), "utf-8")

    return await asyncio.to_thread(get)


def metric_names(exposition: str) -> set[str]:
    return {line.split("{")[0] for line in exposition.splitlines() if 'model="default"' in line}


async def test_the_metrics_have_the_names_that_others_rely_on(
    local: LocalRole, wire: Any, tenant: str, eventually: Eventually
) -> None:
    await wire.run(tenant, "a1")
    of_queue = {
        *("headway_waiting_jobs", "headway_outstanding_jobs", "headway_backlog_tokens", "headway_workers_needed"),
        *("headway_queue_seconds_count", "headway_grant_seconds_count"),
    }
    of_worker = {
        *("headway_step_seconds_count", "headway_step_tokens_count", "headway_running_sequences", "headway_pages"),
        *("headway_preemptions_total", "headway_recomputed_tokens_total", "headway_attempts_total"),
        *("gen_ai_server_time_to_first_token_seconds_count", "gen_ai_server_time_per_output_token_seconds_count"),
        "gen_ai_server_request_duration_seconds_count",
    }

    async def are_served() -> bool:
        queue = metric_names(await scrape(local.queue.telemetry.metrics.address))
        return of_queue <= queue

    await eventually(are_served)
    worker = await scrape(local.worker.telemetry.metrics.address)
    assert of_worker - {"gen_ai_server_request_duration_seconds_count"} <= metric_names(worker)
    assert f'tenant="{tenant}"' in worker
    for state in ("free", "cached", "used"):
        assert f'headway_pages{{model="default",state="{state}"}}' in worker


async def test_the_ends_that_the_queue_writes_itself_are_counted_too(
    local: LocalRole, wire: Any, tenant: str, eventually: Eventually
) -> None:
    await wire.run(tenant, "a1", max_tokens=-1)

    async def is_counted() -> bool:
        lines = (await scrape(local.queue.telemetry.metrics.address)).splitlines()
        return any(
            line.startswith("headway_ended_jobs_total") and 'finish_reason="rejected"' in line and f'"{tenant}"' in line
            for line in lines
        )

    await eventually(is_counted)
