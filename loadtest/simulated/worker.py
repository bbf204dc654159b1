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
from headway.core.job import JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob, WorkerRoom
from headway.core.scheduler import Scheduler
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence as Running
from headway.core.stats import StepStats
from headway.core.stopping import check_fits
from loadtest.recording import Recording, StepLog, Timeline
from loadtest.simulated.cost import EQUAL_STEPS, StepCost

TOKEN = SampledToken(token_id=1)
WORKER = "simulated"


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    num_prompt_tokens: int
    num_output_tokens: int
    """Exactly."""
    due_at: float = 0.0
    """Seconds of the virtual clock."""
    tenant: str = "loadtest"
    label: str = ""
    """Of its kind, for whoever sums up."""

    @property
    def sampling(self) -> SamplingParams:
        num_tokens = self.num_output_tokens
        return SamplingParams(max_tokens=num_tokens, min_tokens=num_tokens, temperature=0.0, ignore_eos=True)


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
"""Called after every step with the time, what it computed, and the queue as it was meanwhile."""


def simulate(jobs: Sequence[SimulatedJob], settings: SimulatedSettings, watch: Watch | None = None) -> Recording:
    """From an empty queue and worker to the end of the last job; timelines in the order of ``jobs``.

    Raises `JobRejected` for a job that could never run.
    """
    return _Run(jobs, settings, watch).to_end()


class _Run:
    def __init__(self, jobs: Sequence[SimulatedJob], settings: SimulatedSettings, watch: Watch | None) -> None:
        self._jobs = jobs
        self._settings = settings
        self._watch = watch
        self._queue = JobQueue(settings.queue)
        pool = PagePool(settings.num_pages, settings.page_size)
        self._scheduler = Scheduler(settings.scheduler, pool, settings.max_model_len)
        for index, job in enumerate(jobs):
            check_fits(_sequence(index, job, 0.0), pool, settings.max_model_len)
        self._upcoming = deque(sorted(range(len(jobs)), key=lambda index: jobs[index].due_at))
        self._granted: dict[JobKey, QueuedJob] = {}
        self._timelines = [Timeline(job.due_at, job.num_output_tokens) for job in jobs]
        self._log = StepLog(first=self._scheduler.stats())
        self._now = 0.0

    def to_end(self) -> Recording:
        while self._upcoming or len(self._queue) or self._scheduler.has_work:
            self._arrive()
            self._take()
            if not self._scheduler.has_work:
                self._now = max(self._now, self._jobs[self._upcoming[0]].due_at)
                continue
            self._step()
        self._log.last = self._scheduler.stats()
        return Recording(self._timelines, self._log, {})

    def _arrive(self) -> None:
        while self._upcoming and self._jobs[self._upcoming[0]].due_at <= self._now:
            index = self._upcoming.popleft()
            self._queue.add(_queued(index, self._jobs[index]), self._now)

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
            index = int(job.key.id)
            self._scheduler.add(_sequence(index, self._jobs[index], self._now))

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


def _sequence(index: int, job: SimulatedJob, now: float) -> Running:
    return Running(
        number=index,
        key=JobKey(job.tenant, str(index)),
        sampling=job.sampling,
        token_ids=[TOKEN.token_id] * job.num_prompt_tokens,
        num_prompt_tokens=job.num_prompt_tokens,
        arrived_at=now,
    )


def _queued(index: int, job: SimulatedJob) -> QueuedJob:
    return QueuedJob(
        key=JobKey(job.tenant, str(index)),
        stream_sequence=index + 1,
        arrival_seconds=job.due_at,
        num_prompt_tokens=job.num_prompt_tokens,
        max_tokens=job.num_output_tokens,
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
