"""Runs the demo's jobs through a real NATS, queue and worker, and measures each as its client sees it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from headway.broker.client import Client
from headway.broker.job_stream import JobStream
from headway.broker.results import Chunk, JobResult
from headway.commands.demo.jobs import DemoJob
from headway.commands.demo.utilisation import JobLength, Utilisation
from headway.commands.job_names import shown
from headway.core.job import JobKey
from headway.core.stats import SchedulerStats
from headway.roles.local import LocalRole
from headway.settings import Settings


@dataclass(slots=True, eq=False)
class DemoRun:
    """One job of the demo. Times are in seconds on the monotonic clock."""

    job: DemoJob
    submitted_at: float | None = None
    first_text_at: float | None = None
    text: str = ""
    result: JobResult | None = None
    """None until it has ended."""

    @property
    def name(self) -> str:
        return shown(JobKey(self.job.tenant, self.job.id))

    @property
    def is_running(self) -> bool:
        return self.first_text_at is not None and self.result is None

    @property
    def num_prompt_tokens(self) -> int:
        return self.result.usage.prompt_tokens if self.result else 0

    @property
    def num_output_tokens(self) -> int:
        return self.result.usage.completion_tokens if self.result else 0

    @property
    def first_token_seconds(self) -> float | None:
        """From the submission to the first text."""
        if self.submitted_at is None or self.first_text_at is None:
            return None
        return self.first_text_at - self.submitted_at

    @property
    def output_tokens_per_s(self) -> float | None:
        """Between the first and the last token; None with fewer than two."""
        if self.result is None or not self.result.timings.decode_seconds:
            return None
        return (self.result.usage.completion_tokens - 1) / self.result.timings.decode_seconds


@dataclass(slots=True, eq=False)
class DemoRuns:
    """All of them, and what the worker counted meanwhile."""

    runs: list[DemoRun]
    seconds: float = 0.0
    """From the first submission to the last end."""
    measured: Utilisation | None = None
    """From the worker's own counters."""

    @classmethod
    def of(cls, jobs: Sequence[DemoJob]) -> Self:
        return cls([DemoRun(job) for job in jobs])

    @property
    def num_completed(self) -> int:
        return sum(run.result is not None and run.result.is_complete for run in self.runs)

    @property
    def num_output_tokens(self) -> int:
        return sum(run.num_output_tokens for run in self.runs)

    @property
    def in_order_of_start(self) -> list[DemoRun]:
        """Those that generated something."""
        started = [run for run in self.runs if run.first_text_at is not None and run.num_output_tokens]
        return sorted(started, key=lambda run: run.first_text_at or 0.0)

    @property
    def lengths(self) -> list[JobLength]:
        return [JobLength(run.num_prompt_tokens, run.num_output_tokens) for run in self.in_order_of_start]


class View(Protocol):
    """Shows the demo while it runs, in ``with``. Called in the event loop."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def stage(self, stage: str) -> None: ...

    def changed(self, run: DemoRun, chunk: Chunk) -> None: ...


async def run_demo(settings: Settings, demo: DemoRuns, view: View) -> None:
    """Everything on free ports and in a temporary folder; nothing is left of it."""
    model = settings.engine.served_model
    async with AsyncExitStack() as parts:
        folder = parts.enter_context(tempfile.TemporaryDirectory(prefix="headway-demo-"))
        local = await parts.enter_async_context(LocalRole(settings, Path(folder), on_stage=view.stage))
        clients = {
            tenant: await parts.enter_async_context(Client.connect(local.nats.url, tenant=tenant, model=model))
            for tenant in dict.fromkeys(run.job.tenant for run in demo.runs)
        }
        view.stage(f"submitting {len(demo.runs)} jobs of {len(clients)} tenants at once")
        await _run_all(demo, clients, local, view, settings.scheduler.max_num_seqs)


async def _run_all(demo: DemoRuns, clients: Mapping[str, Client], local: LocalRole, view: View, num_slots: int) -> None:
    """Runs beside the roles, and fails if they do."""
    before = local.worker.stats
    started_at = time.monotonic()
    streams = [await _submit(run, clients) for run in demo.runs]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(local.run(stop))
        following = [
            group.create_task(_follow(run, stream, view)) for run, stream in zip(demo.runs, streams, strict=True)
        ]
        await asyncio.wait(following)
        stop.set()
    demo.seconds = time.monotonic() - started_at
    demo.measured = _utilisation(before, local.worker.stats, num_slots)


async def _submit(run: DemoRun, clients: Mapping[str, Client]) -> JobStream:
    """One after the other, so that the tenants' jobs arrive mixed."""
    run.submitted_at = time.monotonic()
    return await clients[run.job.tenant].submit(**run.job.fields())


async def _follow(run: DemoRun, stream: JobStream, view: View) -> None:
    async for chunk in stream:
        if chunk.text and run.first_text_at is None:
            run.first_text_at = time.monotonic()
        run.text += chunk.text
        if chunk.is_last:
            run.result = await stream.result()
        view.changed(run, chunk)


def _utilisation(before: SchedulerStats | None, after: SchedulerStats | None, num_slots: int) -> Utilisation | None:
    """Of the worker's steps in between. None if the engine was started anew, which began the counters again."""
    if after is None:
        return None
    num_busy_slots, num_slots_total = after.num_busy_slots_total, after.num_slots_total
    if before is not None:
        num_busy_slots -= before.num_busy_slots_total
        num_slots_total -= before.num_slots_total
    return Utilisation(num_slots_total // num_slots, num_busy_slots, num_slots_total) if num_slots_total >= 0 else None
