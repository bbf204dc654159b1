"""The whole path: a client's jobs over NATS to the queue, by lease to the worker, and tokens back over NATS.

The queue, the worker's I/O side and the load generator share this process (as under ``headway up``); the engine and
nats-server are processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence

from headway import Client
from headway.engine.messages import StepReport
from headway.roles.local import LocalRole
from loadtest.machine import CpuClock
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.requests import Request

TENANT = "loadtest"


async def run_on_nats(local: LocalRole, model: str, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
    """Returns when every request has ended; nobody else may use ``local`` meanwhile."""
    timelines = [Timeline(due, request.num_output_tokens) for request, due in zip(requests, due_at, strict=True)]
    cpu = CpuClock({"headway": os.getpid(), "engine": local.worker.engine.pid, "nats-server": local.nats.pid})
    log = StepLog(first=local.worker.stats)
    local.worker.on_report = log.add
    started = time.monotonic()
    async with Client.connect(local.nats.url, tenant=TENANT, model=model) as client, asyncio.TaskGroup() as tasks:
        for request, timeline in zip(requests, timelines, strict=True):
            tasks.create_task(_run_one(client, request, timeline, started), name=f"request due at {timeline.due_at}")
    local.worker.on_report = _ignore
    return Recording(timelines, log, cpu.elapsed())


async def _run_one(client: Client, request: Request, timeline: Timeline, started: float) -> None:
    await asyncio.sleep(started + timeline.due_at - time.monotonic())
    sampling = request.sampling
    stream = client.submit(
        request.prompt_token_ids,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        ignore_eos=sampling.ignore_eos,
    )
    async for chunk in stream:
        now = time.monotonic() - started
        timeline.receive(len(chunk.token_ids), now)
        if chunk.finish_reason is not None:
            timeline.end(chunk.finish_reason, now)


def _ignore(report: StepReport) -> None:
    pass
