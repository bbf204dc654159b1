"""The engine alone, in this process: what the model, the scheduler and the sampler can do with nothing around them."""

from __future__ import annotations

import heapq
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence

from headway.core.job import FinishReason, JobKey
from headway.engine.engine import Engine
from headway.engine.messages import Cancel, SequenceOutput, StepReport, Submit
from loadtest.machine import CpuClock
from loadtest.progress import Ticker, Watch, nobody
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.workloads.plan import Due, Line, Plan
from loadtest.workloads.requests import Request


def run_on_engine(
    engine: Engine,
    requests: Sequence[Request],
    plan: Plan,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    watch: Watch = nobody,
) -> Recording:
    """The engine must be idle. Returns when every request has ended."""
    cpu = CpuClock({"engine": os.getpid()})
    log = StepLog()
    log.add(engine.report())
    run = _Run(engine, requests, plan, clock)
    ticker = Ticker(run.timelines, watch)
    while not run.is_over:
        run.send_and_cancel()
        report = engine.step(clock())
        run.note(report)
        log.add(report, run.now)
        ticker.tick(run.now)
        if not run.has_open:
            sleep_until_due(run, sleep)
    return Recording(run.timelines, log, cpu.elapsed(), run.errors)


def sleep_until_due(run: _Run, sleep: Callable[[float], None]) -> None:
    """Of a run that has nothing to do before."""
    due_at = run.line.next_due_at
    if due_at is not None and due_at > run.now:
        sleep(due_at - run.now)


class _Run:
    """Who was sent, and who has ended."""

    def __init__(self, engine: Engine, requests: Sequence[Request], plan: Plan, clock: Callable[[], float]) -> None:
        self.timelines = [Timeline.of(request) for request in requests]
        self.line = Line(plan)
        self.errors: Counter[str] = Counter()
        self._engine = engine
        self._requests = requests
        self._clock = clock
        self._open: set[int] = set()
        self._cancels: list[Due] = []
        self._started = clock()

    @property
    def now(self) -> float:
        return self._clock() - self._started

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    @property
    def is_over(self) -> bool:
        return not self._open and not self.line.has_more

    def send_and_cancel(self) -> None:
        now = self.now
        for due in self.line.take(now):
            self._send(due, now)
        while self._cancels and self._cancels[0].due_at <= now:
            self._cancel(heapq.heappop(self._cancels).number)

    def note(self, report: StepReport) -> None:
        now = self.now
        for output in report.outputs:
            timeline = self.timelines[int(output.key.id)]
            timeline.receive(len(output.token_ids), now)
            if output.finish_reason is not None:
                self._end(int(output.key.id), output, output.finish_reason, now)

    def _send(self, due: Due, now: float) -> None:
        request = self._requests[due.number]
        self.timelines[due.number].send(due.due_at, now)
        self._open.add(due.number)
        self._engine.submit(
            Submit(_key(due.number, request), request.sampling, request.prompt_token_ids, None), self._clock()
        )
        if request.cancel_after_seconds is not None:
            heapq.heappush(self._cancels, Due(due.due_at + request.cancel_after_seconds, due.number))

    def _cancel(self, index: int) -> None:
        if index in self._open:
            self.timelines[index].has_given_up = True
            self._engine.cancel(Cancel(_key(index, self._requests[index])), self._clock())

    def _end(self, index: int, output: SequenceOutput, reason: FinishReason, now: float) -> None:
        timeline = self.timelines[index]
        timeline.end(reason, now)
        if output.error is not None:
            self.errors[output.error.code] += 1
        if output.first_scheduled_at is not None:
            timeline.queue_seconds = output.first_scheduled_at - self._started - timeline.due_at
        self._open.discard(index)
        self.line.ended(index, now)


def _key(index: int, request: Request) -> JobKey:
    return JobKey(request.tenant, str(index))
