"""What alerts are made of: troubles of a process as numbers that a scrape shows while they last."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.roles.test_queue_troubles import FILLER, RESULTS, fill

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]
Eventually = Callable[..., Awaitable[None]]
TENANT = "troubled"


async def shown(process: Any, name: str, **labels: str) -> float | None:
    """The value of the one series with these labels; None: there is none."""

    def scrape() -> str:
        with urllib.request.urlopen(f"http://{process.telemetry.metrics.address}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")

    samples = [
        sample
        for family in text_string_to_metric_families(await asyncio.to_thread(scrape))
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return samples[0].value if len(samples) == 1 else None


async def test_a_stream_that_refuses_is_a_condition_that_does_not_hold(
    parts: Any, tenant: str, job: Job, eventually: Eventually
) -> None:
    queue = await parts.queue(broker={"max_result_bytes": 2**20})

    async def stores(expected: float) -> bool:
        return await shown(queue, "headway_ready", role="queue", condition="results") == expected

    assert await stores(1)
    await fill(parts)
    await parts.wire.publish(tenant, job(id="a1", deadline_seconds=0.01))
    await eventually(lambda: stores(0))
    await parts.wire.client.jetstream().purge_stream(RESULTS, subject=FILLER)
    await eventually(lambda: stores(1))


async def test_a_payload_that_nobody_can_read_is_a_dead_letter(parts: Any, tenant: str, eventually: Eventually) -> None:
    queue = await parts.queue()
    await parts.wire.publish(tenant, b"no job at all")

    async def is_counted() -> bool:
        return await shown(queue, "headway_dead_letters_total", model="default") == 1

    await eventually(is_counted)


async def test_an_engine_that_was_killed_and_its_lost_job_are_counted(
    parts: Any, job: Job, eventually: Eventually
) -> None:
    queue = await parts.queue(lease_terms={"max_attempts": 1})
    worker = await parts.worker()
    assert await shown(worker, "headway_engine_failures_total", model="default") == 0
    assert await shown(worker, "headway_engine_process_resident_memory_bytes") > await shown(
        worker, "headway_engine_process_open_fds"
    )
    await parts.wire.publish(TENANT, job(id="poison", max_tokens=300))
    await parts.wire.has_tokens(TENANT, "poison")
    os.kill(worker.engine.pid, signal.SIGKILL)
    await eventually(lambda: worker.stats is None)
    assert await shown(worker, "headway_engine_failures_total", model="default") == 1
    assert await shown(worker, "headway_ready", role="worker", condition="engine") == 0
    await parts.wire.ended(TENANT, "poison")

    async def is_counted() -> bool:
        return await shown(queue, "headway_dead_letters_total", model="default") == 1

    await eventually(is_counted)
    await eventually(lambda: worker.stats is not None)


async def test_only_the_leader_names_its_epoch(parts: Any) -> None:
    queue = await parts.queue()
    assert await shown(queue, "headway_leader_epoch") == queue.epoch
