"""The trace of a job whose engine dies, as a collector gets it over OTLP from the queue and from the worker."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.otlp_collector import CollectedSpan, Collector

pytestmark = pytest.mark.asyncio(loop_scope="session")
TENANT, LONG = "traced", 300
CLOCK_SECONDS = 0.005
"""Allowance for reading two clocks one after the other."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def trace(
    open_parts: Callable[[], Any], job: Callable[..., dict[str, Any]], eventually: Callable[..., Awaitable[None]]
) -> AsyncIterator[list[CollectedSpan]]:
    """All spans of the job, once both processes have ended and exported."""
    with Collector() as collector:
        telemetry = {"otlp_endpoint": collector.endpoint}
        async with open_parts() as parts:
            await parts.queue(telemetry=telemetry)
            worker = await parts.worker(telemetry=telemetry)
            await parts.wire.publish(TENANT, job(id="a1", max_tokens=LONG))
            await parts.wire.has_tokens(TENANT, "a1")
            os.kill(worker.engine.pid, signal.SIGKILL)
            assert len((await parts.wire.ended(TENANT, "a1")).token_ids) == LONG
        yield [span for span in collector.spans if span.name != "step"]


def of(trace: list[CollectedSpan], name: str) -> list[CollectedSpan]:
    return [span for span in trace if span.name == name]


async def test_it_is_one_trace_from_two_processes(trace: list[CollectedSpan]) -> None:
    assert len({span.trace_id for span in trace}) == 1
    assert {span.service for span in trace} == {"headway-queue", "headway-worker"}
    (root,) = of(trace, "submit")
    assert {span.parent_id for span in trace if span is not root} == {root.span_id}


async def test_each_attempt_has_its_wait_its_prefill_and_its_decode(trace: list[CollectedSpan]) -> None:
    for name in ("queue", "prefill", "decode"):
        assert len(of(trace, name)) == 2, name
    (root,) = of(trace, "submit")
    for first, second in zip(*(of(trace, name) for name in ("prefill", "decode")), strict=True):
        assert root.start <= first.end <= second.start + CLOCK_SECONDS <= root.end + 2 * CLOCK_SECONDS


async def test_the_second_wait_begins_when_the_job_came_back(trace: list[CollectedSpan]) -> None:
    first, second = of(trace, "queue")
    (root,) = of(trace, "submit")
    assert first.start == root.start
    assert of(trace, "decode")[0].end <= second.start + CLOCK_SECONDS
    assert second.end <= of(trace, "prefill")[1].start + CLOCK_SECONDS


async def test_the_lost_attempt_says_that_it_was_lost_and_how_far_it_came(trace: list[CollectedSpan]) -> None:
    for name in ("prefill", "decode"):
        lost, kept = of(trace, name)
        assert (lost.is_error, kept.is_error) == (True, False)
        assert "SIGKILL" in lost.attributes["headway.lost"]
        assert "headway.lost" not in kept.attributes
        assert [span.attributes["headway.attempt"] for span in (lost, kept)] == [1, 2]
        assert 0 < lost.attributes["gen_ai.usage.output_tokens"] < LONG
        assert kept.attributes["gen_ai.usage.output_tokens"] == LONG


async def test_the_second_attempt_links_to_a_span_that_there_is(trace: list[CollectedSpan]) -> None:
    lost, kept = of(trace, "prefill")
    assert lost.links == ()
    assert kept.links == (lost.span_id,)
    assert of(trace, "decode")[1].links == (lost.span_id,)
