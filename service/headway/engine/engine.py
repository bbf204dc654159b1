"""The engine in one process: jobs in, reports out, one step at a time.

    Submit ─▶ announce ─ prepare ─ start ─▶ Scheduler
                                                │ schedule            decide
                                             Pipeline                 execute: launch it, then read the one before it
                                                │ Detokenizer         does a stop string end here?
                                             Scheduler.update         apply
                                                └─▶ outputs of all jobs that changed ─▶ StepReport

With ``max_steps_in_flight`` of 2 all of the host's work for a step is done while the device runs another; what a job
gets is the same (`pipeline`, `core.scheduler`).

It has no thread: whoever calls `step` drives it (the engine child's loop, a benchmark, a test). Only `prepare` may run
in another thread, beside the steps. What goes wrong with one job ends that job alone (`careful_runner` finds out which
job it is).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from headway.core.batch import SampledToken, StepOutcome, StepResult
from headway.core.errors import JobRejected
from headway.core.job import FinishReason, JobKey
from headway.core.records import ErrorInfo
from headway.core.scheduler import Scheduler
from headway.core.sequence import SequenceStatus
from headway.core.stats import SchedulerStats, StepStats
from headway.engine.active_job import ActiveJob
from headway.engine.careful_runner import CarefulRunner
from headway.engine.messages import Cancel, Command, Ready, SequenceOutput, StepReport, Submit, Withdraw
from headway.engine.pipeline import Flight, Pipeline
from headway.engine.preparer import ENGINE_ERROR, Arrival, Prepared, Preparer, reject
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class Engine:
    """``now`` is in seconds of CLOCK_MONOTONIC everywhere; ``clock`` measures how long a step takes."""

    def __init__(
        self,
        ready: Ready,
        tokenizer: Tokenizer,
        scheduler: Scheduler,
        runner: Runner,
        sampler: Sampler,
        eos_token_ids: frozenset[int],
        max_steps_in_flight: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ready = ready
        """What others must know of it."""
        self._preparer = Preparer(tokenizer, eos_token_ids)
        self._scheduler = scheduler
        self._runner = CarefulRunner(runner)
        self._pipeline = Pipeline(self._runner, max_steps_in_flight, clock)
        self._sampler = sampler
        self._clock = clock
        self._arrivals: dict[JobKey, Arrival] = {}
        self._jobs: dict[JobKey, ActiveJob] = {}
        self._jobs_by_number: dict[int, ActiveJob] = {}
        self._outputs: list[SequenceOutput] = []

    @property
    def has_work(self) -> bool:
        """Whether a step would compute or end something; a job that is still being prepared is nothing to compute."""
        return self._scheduler.has_work or not self._pipeline.is_empty

    def apply(self, command: Command, now: float) -> None:
        match command:
            case Submit():
                self.submit(command, now)
            case Cancel():
                self.cancel(command, now)
            case Withdraw():
                self.withdraw(command)

    def submit(self, command: Submit, now: float) -> None:
        """Take a job. One that cannot run gets its last output at once; a newer submission of a job replaces it."""
        self.start(self.prepare(self.announce(command, now)), now)

    def announce(self, command: Submit, now: float) -> Arrival:
        """The first third of `submit`: the job is known, so that it can be cancelled, withdrawn, replaced or expire."""
        self._drop_arrival(command.key)
        earlier = self._jobs.get(command.key)
        if earlier is not None:
            self._scheduler.withdraw(earlier.sequence)
            self._forget(earlier)
        arrival = self._arrivals[command.key] = Arrival(command, now)
        return arrival

    def prepare(self, arrival: Arrival) -> Prepared:
        """The second third, which may take a while; in any thread, for one job at a time."""
        return self._preparer.prepare(arrival)

    def start(self, prepared: Prepared, now: float) -> None:
        """The last third: let the job wait for its turn, unless it was dropped meanwhile."""
        arrival, outcome = prepared
        if arrival.is_dropped:
            return
        self._drop_arrival(arrival.key)
        if isinstance(outcome, SequenceOutput):
            self._outputs.append(outcome)
            return
        try:
            self._scheduler.add(outcome.sequence)
        except JobRejected as rejected:
            self._outputs.append(reject(arrival, rejected))
        else:
            self._enter(outcome, now)

    def cancel(self, command: Cancel, now: float) -> None:
        arrival = self._drop_arrival(command.key)
        job = self._jobs.get(command.key)
        if arrival is not None:
            self._outputs.append(arrival.end(command.reason))
        elif job is not None:
            self._end(job, command.reason, now, is_delivered=False)

    def withdraw(self, command: Withdraw) -> None:
        """Give a job back. What it had not delivered is sampled again elsewhere, the same."""
        arrival = self._drop_arrival(command.key)
        if arrival is not None:
            self._outputs.append(arrival.end(None))
            return
        job = self._jobs.get(command.key)
        if job is None or (command.only_if_waiting and job.sequence.first_scheduled_at is not None):
            return
        self._scheduler.withdraw(job.sequence)
        self._forget(job)
        self._outputs.append(job.end(None, is_delivered=False))

    def use_scheduler(self, scheduler: Scheduler, max_num_seqs: int) -> None:
        """Form batches with this one from now on, over the same pages; for load tests, which compare settings without
        loading the model again. Raises ``RuntimeError`` if there is work."""
        if self.has_work or self._arrivals:
            raise RuntimeError("the engine has work")
        self._scheduler = scheduler
        self.ready = msgspec.structs.replace(self.ready, max_num_seqs=max_num_seqs)

    def rehearse(self) -> None:
        """Compute something that no job asks for, before the first step. Raises `EngineError` if that fails."""
        self._runner.rehearse(self.ready.vocab_size, self.ready.num_pages)

    def step(self, now: float) -> StepReport:
        """End the oldest step in flight, having launched as many as there may be, and report all that changed since the
        last report. Nothing in flight and nothing to compute: just report."""
        self._expire(now)
        started = self._clock()
        self._launch(now)
        if self._pipeline.is_empty:
            return self.report()
        flight, result = self._pipeline.finish()
        self._end_failed(result, now)
        result = self._read(result, now)
        finished_at = now + self._clock() - started
        result = replace(result, seconds=self._pipeline.seconds(flight))
        self._deliver(self._scheduler.update(flight.plan, result, finished_at), finished_at)
        return self.report(_measure(flight, self._pipeline.close(flight)))

    def _launch(self, now: float) -> None:
        """As many steps as may be in flight."""
        while self._pipeline.has_room:
            began_at = self._clock()
            plan = self._scheduler.schedule(now)
            if not plan.chunks:
                return
            self._pipeline.launch(plan, began_at)

    def report(self, step: StepStats | None = None) -> StepReport:
        """All that changed since the last report."""
        outputs = tuple(self._outputs)
        self._outputs.clear()
        return StepReport(outputs, self._stats(), step)

    def _stats(self) -> SchedulerStats:
        """Jobs that are being prepared wait too."""
        stats = self._scheduler.stats()
        if not self._arrivals:
            return stats
        page_size = self.ready.page_size
        num_pages = sum(arrival.num_tokens // page_size + 1 for arrival in self._arrivals.values())
        return replace(
            stats,
            num_waiting=stats.num_waiting + len(self._arrivals),
            waiting_pages=stats.waiting_pages + num_pages,
        )

    def _enter(self, job: ActiveJob, now: float) -> None:
        """The scheduler has the job; it has ended already if the output that it resumes from is complete."""
        self._jobs[job.key] = job
        self._jobs_by_number[job.sequence.number] = job
        reason = FinishReason.STOP if job.detokenizer.found_stop else job.sequence.finish_reason
        if reason is not None:
            self._end(job, reason, now)

    def _expire(self, now: float) -> None:
        """What was generated before the deadline is delivered."""
        for arrival in [a for a in self._arrivals.values() if a.expires_at is not None and a.expires_at <= now]:
            self._drop_arrival(arrival.key)
            self._outputs.append(arrival.end(FinishReason.EXPIRED))
        late = [job for job in self._jobs.values() if job.expires_at is not None and job.expires_at <= now]
        for job in late:
            self._end(job, FinishReason.EXPIRED, now)

    def _read(self, result: StepResult, now: float) -> StepResult:
        """The result with the tokens marked that complete a stop string."""
        sampled: dict[int, SampledToken] = {}
        for number, token in result.sampled.items():
            job = self._jobs_by_number.get(number)
            if job is None:
                continue  # it ended while the step was in flight
            try:
                sampled[number] = replace(token, completes_stop=job.read(token))
            except Exception:
                logger.exception("job %s/%s cannot be detokenized", *job.key)
                error = ErrorInfo(ENGINE_ERROR, None, "the engine failed to read this job's output")
                self._end(job, FinishReason.ERROR, now, is_delivered=False, error=error)
        return StepResult(sampled)

    def _end_failed(self, result: StepResult, now: float) -> None:
        """What they have generated before is theirs."""
        for number, reason in result.failed.items():
            job = self._jobs_by_number[number]
            logger.error("job %s/%s failed: %s", *job.key, reason)
            self._end(job, FinishReason.ERROR, now, error=ErrorInfo(ENGINE_ERROR, None, reason))

    def _deliver(self, outcome: StepOutcome, now: float) -> None:
        for sequence in outcome.appended:
            job = self._jobs_by_number[sequence.number]
            job.last_token_at = now
            if sequence.finish_reason is not None:
                self._end(job, sequence.finish_reason, now)
                continue
            output = job.progress()
            if output is not None:
                self._outputs.append(output)

    def _end(
        self,
        job: ActiveJob,
        reason: FinishReason,
        now: float,
        is_delivered: bool = True,
        error: ErrorInfo | None = None,
    ) -> None:
        """The one way out for a job that ends here."""
        if job.sequence.status is not SequenceStatus.FINISHED:
            self._scheduler.end(job.sequence, reason, now)
        self._forget(job)
        self._outputs.append(job.end(reason, is_delivered, error))

    def _drop_arrival(self, key: JobKey) -> Arrival | None:
        """Nothing that is still prepared of it counts; None if there is none."""
        arrival = self._arrivals.pop(key, None)
        if arrival is not None:
            arrival.is_dropped = True
        return arrival

    def _forget(self, job: ActiveJob) -> None:
        del self._jobs[job.key]
        del self._jobs_by_number[job.sequence.number]
        self._sampler.forget(job.sequence)


def _measure(flight: Flight, seconds: float) -> StepStats:
    plan = flight.plan
    num_prefill_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.is_prefill)
    return StepStats(
        number=plan.number,
        seconds=seconds,
        schedule_seconds=flight.planned_at - flight.began_at,
        num_prefill_tokens=num_prefill_tokens,
        num_decode_tokens=plan.num_tokens - num_prefill_tokens,
        num_sequences=len(plan.chunks),
        prefill_budget=plan.prefill_budget,
        predicted_seconds=plan.predicted_seconds,
    )
