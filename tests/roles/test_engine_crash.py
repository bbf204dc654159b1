"""The engine child dies; the jobs go on, and what their clients have seen stays as it is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from headway.lease.health import Probe

pytestmark = pytest.mark.asyncio(loop_scope="session")
Job = Callable[..., dict[str, Any]]

TENANT = "acme"
LONG = 300
RUNNING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 1.0, "seed": 3},
    "penalised": {"frequency_penalty": 0.5},
}
LATE = [f"late{number}" for number in range(12)]


@dataclass(frozen=True)
class Crash:
    """An engine was killed under three jobs, more jobs came while there was none, and all of them have ended."""

    wire: Any
    worker: Any


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crash(
    open_parts: Callable[[], Any], job: Job, eventually: Callable[..., Awaitable[None]]
) -> AsyncIterator[Crash]:
    async with open_parts() as parts:
        await parts.queue()
        worker, wire = await parts.worker(), parts.wire
        for name, fields in RUNNING.items():
            await wire.publish(TENANT, job(id=name, max_tokens=LONG, **fields))
        await asyncio.gather(*(wire.has_tokens(TENANT, name) for name in RUNNING))
        os.kill(worker.engine.pid, signal.SIGKILL)
        await eventually(lambda: worker.stats is None)
        for name in LATE:
            await wire.publish(TENANT, job(id=name))
        await asyncio.gather(*(wire.ended(TENANT, name) for name in [*RUNNING, *LATE]))
        yield Crash(wire, worker)


@pytest.mark.parametrize("name", RUNNING)
async def test_tokens_that_were_delivered_never_change_or_repeat(crash: Crash, name: str) -> None:
    log = crash.wire.log(TENANT, name)
    assert log.kinds == ["attempt", "tokens", "attempt", "tokens", "end"]
    assert [record["number"] for record in log.of_kind("attempt")] == [1, 2]
    num_tokens = 0
    for seq, record in enumerate(log.of_kind("tokens")):
        assert (record["seq"], record["token_start"]) == (seq, num_tokens)
        num_tokens += len(record["token_ids"])
    assert log.end["usage"]["completion_tokens"] == num_tokens == LONG


@pytest.mark.parametrize("name", RUNNING)
async def test_the_output_is_that_of_a_run_that_nothing_disturbed(crash: Crash, name: str) -> None:
    disturbed = crash.wire.log(TENANT, name)
    undisturbed = await crash.wire.run(f"{TENANT}-calm", name, max_tokens=LONG, **RUNNING[name])
    assert undisturbed.kinds == ["attempt", "tokens", "end"]
    assert (undisturbed.token_ids, undisturbed.text) == (disturbed.token_ids, disturbed.text)


async def test_jobs_that_came_while_there_was_no_engine_lost_no_attempt(crash: Crash) -> None:
    for name in LATE:
        log = crash.wire.log(TENANT, name)
        assert (log.end["finish_reason"], len(log.token_ids)) == ("length", 12)
        assert len(log.of_kind("attempt")) == 1 + len(log.of_kind("released"))


async def test_the_worker_is_as_ready_as_before(crash: Crash) -> None:
    assert crash.worker.health.is_ok(Probe.READINESS)
    assert crash.worker.health.is_ok(Probe.LIVENESS)


async def test_a_job_that_has_lost_its_last_attempt_is_dead(parts: Any, job: Job) -> None:
    await parts.queue(lease_terms={"max_attempts": 1})
    worker = await parts.worker()
    await parts.wire.publish(TENANT, job(id="poison", max_tokens=LONG))
    await parts.wire.has_tokens(TENANT, "poison")
    os.kill(worker.engine.pid, signal.SIGKILL)
    log = await parts.wire.ended(TENANT, "poison")
    assert (log.end["finish_reason"], log.error) == ("error", ("attempts_exhausted", None))
    assert log.end["usage"]["completion_tokens"] == len(log.token_ids) > 0
    assert await parts.wire.dead_reasons(TENANT, "poison") == ["attempts_exhausted"]


async def test_an_engine_that_hangs_in_a_step_is_replaced(parts: Any, job: Job) -> None:
    await parts.queue()
    worker = await parts.worker(roles={"step_timeout_seconds": 1.0})
    await parts.wire.publish(TENANT, job(id="a1", max_tokens=LONG))
    await parts.wire.has_tokens(TENANT, "a1")
    os.kill(parts.engine_of(worker), signal.SIGSTOP)
    log = await parts.wire.ended(TENANT, "a1")
    assert (log.kinds, len(log.token_ids)) == (["attempt", "tokens", "attempt", "tokens", "end"], LONG)
