"""One queue and one worker on a virtual clock.

Jobs wait in a `JobQueue`; after every step the worker takes what it has room for, as `core.worker_leases` would ask
for it, and its `Scheduler` forms the next batch. Everything that decides is the real code; only the model, the
processes and the time between them are left out. So a schedule of thousands of requests takes seconds, and its
figures are the same on every machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.core.job import JobKey
from headway.core.pages import PagePool
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob, WorkerRoom
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence as Running
from headway.core.stats import StepStats
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.requests import Request
from loadtest.simulated.cost import EQUAL_STEPS, StepCost

TOKEN = SampledToken(token_id=1)
WORKER = "simulated"


@dataclass(frozen=True, slots=True)
class SimulatedSettings:
    num_pages: int
    page_size: int = 16
    max_model_len: int = 8192
    prefetch: int = 0
    """Jobs taken beyond ``max_num_seqs``. A simulated grant takes no time, so nothing need be hidden."""
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    queue: QueueConfig = field(default_factory=QueueConfig)
    cost: StepCost = EQUAL_STEPS


Watch = Callable[[float, StepPlan, JobQueue], None]
"""Called after every step with the time, what it computed, and the queue as it is then."""


class SimulatedWorker:
    """May run any number of workloads, one after the other; each begins at 0 with everything empty."""

    def __init__(self, settings: SimulatedSettings, watch: Watch | None = None) -> None:
        self._settings = settings
        self._watch = watch

    def run(self, requests: Sequence[Request], due_at: Sequence[float]) -> Recording:
        """``due_at`` in seconds of the virtual clock. Raises `JobRejected` for a request that could never run."""
        return _Run(self._settings, requests, due_at, self._watch).to_end()


class _Run:
    def __init__(
        self, settings: SimulatedSettings, requests: Sequence[Request], due_at: Sequence[float], watch: Watch | None
    ) -> None:
        self._settings = settings
        self._requests = requests
        self._watch = watch
        self._queue = JobQueue(settings.queue)
        pool = PagePool(settings.num_pages, settings.page_size)
        self._scheduler = Scheduler(settings.scheduler, pool, settings.max_model_len)
        self._upcoming = deque(sorted(range(len(requests)), key=due_at.__getitem__))
        self._granted: dict[JobKey, QueuedJob] = {}
        self._timelines = [
            Timeline(due, request.num_output_tokens) for request, due in zip(requests, due_at, strict=True)
        ]
        self._log = StepLog(first=self._scheduler.stats())
        self._now = 0.0

    def to_end(self) -> Recording:
        while self._upcoming or len(self._queue) or self._scheduler.has_work:
            self._arrive()
            self._take()
            if not self._scheduler.has_work:
                self._now = max(self._now, self._timelines[self._upcoming[0]].due_at)
                continue
            self._step()
        self._log.last = self._scheduler.stats()
        return Recording(self._timelines, self._log, {})

    def _arrive(self) -> None:
        while self._upcoming and self._timelines[self._upcoming[0]].due_at <= self._now:
            index = self._upcoming.popleft()
            self._queue.add(_queued(index, self._requests[index], self._timelines[index].due_at), self._now)

    def _take(self) -> None:
        """As many jobs as a worker would ask for (`core.worker_leases.WorkerLeases.demand`)."""
        settings = self._settings
        while True:
            stats = self._scheduler.stats()
            num_held = stats.num_running + stats.num_waiting
            if num_held >= settings.scheduler.max_num_seqs + settings.prefetch:
                return
            free = stats.admissible_pages - stats.waiting_pages if num_held else settings.num_pages
            room = WorkerRoom(WORKER, max(0, free), settings.page_size, settings.num_pages)
            job = self._queue.take(self._now, room)
            if job is None:
                return
            self._granted[job.key] = job
            self._scheduler.add(self._sequence(job))

    def _sequence(self, job: QueuedJob) -> Running:
        index = int(job.key.id)
        request = self._requests[index]
        return Running(
            number=index,
            key=job.key,
            sampling=request.sampling,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=len(request.prompt_token_ids),
            arrived_at=self._now,
        )

    def _step(self) -> None:
        plan = self._scheduler.schedule(self._now)
        seconds = self._settings.cost.seconds(plan)
        self._now += seconds
        sampled = {chunk.sequence.number: TOKEN for chunk in plan.chunks if chunk.is_sampled}
        self._log.steps.append(_step_stats(plan, seconds))
        for sequence in self._scheduler.update(plan, StepResult(sampled), self._now).appended:
            self._note(sequence)
        if self._watch is not None:
            self._watch(self._now, plan, self._queue)

    def _note(self, sequence: Running) -> None:
        timeline = self._timelines[sequence.number]
        timeline.receive(1, self._now)
        job = self._granted[sequence.key]
        self._queue.report(job, sequence.num_prompt_tokens, sequence.num_cached_tokens, sequence.num_output_tokens)
        if sequence.finish_reason is not None:
            timeline.end(sequence.finish_reason, self._now)
            self._queue.settle(self._granted.pop(sequence.key), sequence.num_output_tokens)


def _queued(index: int, request: Request, due_at: float) -> QueuedJob:
    return QueuedJob(
        key=JobKey(getattr(request,"tenant","loadtest"), str(index)),
        stream_sequence=index + 1,
        arrival_seconds=due_at,
        num_prompt_tokens=len(request.prompt_token_ids),
        max_tokens=request.num_output_tokens,
    )


def _step_stats(plan: StepPlan, seconds: float) -> StepStats:
    num_prefill_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.is_prefill)
    return StepStats(
        number=plan.number,
        seconds=seconds,
        schedule_seconds=0.0,
        num_prefill_tokens=num_prefill_tokens,
        num_decode_tokens=plan.num_tokens - num_prefill_tokens,
        num_sequences=len(plan.chunks),
    )
