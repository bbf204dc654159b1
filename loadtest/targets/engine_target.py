"""The engine alone, in this process: what the model, the scheduler and the sampler can do with nothing around them."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence

from headway.core.job import JobKey
from headway.engine.engine import Engine
from headway.engine.messages import StepReport, Submit
from loadtest.machine import CpuClock
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.workloads.requests import Request

TENANT = "loadtest"


def run_on_engine(
    engine: Engine,
    requests: Sequence[Request],
    due_at: Sequence[float],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """The engine must be idle. Returns when every request has ended."""
    timelines = [Timeline(due, request.num_output_tokens) for request, due in zip(requests, due_at, strict=True)]
    cpu = CpuClock({"engine": os.getpid()})
    log = StepLog()
    log.add(engine.report())
    upcoming = deque(sorted(range(len(requests)), key=due_at.__getitem__))
    started = clock()
    while upcoming or engine.has_work:
        now = clock() - started
        while upcoming and due_at[upcoming[0]] <= now:
            index = upcoming.popleft()
            engine.submit(_submit(index, requests[index]), clock())
        if upcoming and not engine.has_work:
            sleep(max(0.0, due_at[upcoming[0]] - now))
            continue
        report = engine.step(clock())
        _note(report, timelines, clock() - started)
        log.add(report)
    return Recording(timelines, log, cpu.elapsed())


def _note(report: StepReport, timelines: Sequence[Timeline], now: float) -> None:
    for output in report.outputs:
        timeline = timelines[int(output.key.id)]
        timeline.receive(len(output.token_ids), now)
        if output.finish_reason is not None:
            timeline.end(output.finish_reason, now)


def _submit(index: int, request: Request) -> Submit:
    return Submit(JobKey(TENANT, str(index)), request.sampling, request.prompt_token_ids, None)
