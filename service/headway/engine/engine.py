"""The engine in one process: jobs in, reports out, one step at a time.

    Submit ─▶ tokenize, check ─▶ Sequence ─▶ Scheduler
                                                │ schedule            decide
                                             Runner.run               execute
                                                │ Detokenizer         does a stop string end here?
                                             Scheduler.update         apply
                                                └─▶ outputs of all jobs that changed ─▶ StepReport

It has no thread: whoever calls `step` drives it (the engine child's loop, a benchmark, a test). What goes wrong with
one job ends that job alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from headway.core.batch import SampledToken, StepOutcome, StepPlan, StepResult
from headway.core.errors import JobRejected
from headway.core.job import FinishReason, JobKey
from headway.core.records import ErrorInfo
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.stats import StepStats
from headway.engine.active_job import ActiveJob
from headway.engine.detokenizer import Detokenizer
from headway.engine.messages import Cancel, Command, Ready, SequenceOutput, StepReport, Submit, Withdraw
from headway.engine.runner import Runner
from headway.engine.sampling import Sampler
from headway.engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

ENGINE_ERROR = "engine_error"
"""``error.code`` of a job that failed by a fault of ours."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ready = ready
        """What others must know of it."""
        self._tokenizer = tokenizer
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._eos_token_ids = eos_token_ids
        self._clock = clock
        self._jobs: dict[JobKey, ActiveJob] = {}
        self._jobs_by_number: dict[int, ActiveJob] = {}
        self._num_submitted = 0
        self._outputs: list[SequenceOutput] = []

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

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
        earlier = self._jobs.get(command.key)
        if earlier is not None:
            self._scheduler.withdraw(earlier.sequence)
            self._forget(earlier)
        try:
            self._start(self._job(command, now), now)
        except JobRejected as rejected:
            error = ErrorInfo(rejected.code, rejected.field, rejected.message)
            self._outputs.append(SequenceOutput(command.key, finish_reason=FinishReason.REJECTED, error=error))
        except Exception:
            logger.exception("job %s/%s cannot be taken", *command.key)
            error = ErrorInfo(ENGINE_ERROR, None, "the engine failed to take this job")
            self._outputs.append(SequenceOutput(command.key, finish_reason=FinishReason.ERROR, error=error))

    def cancel(self, command: Cancel, now: float) -> None:
        job = self._jobs.get(command.key)
        if job is not None:
            self._end(job, command.reason, now, is_delivered=False)

    def withdraw(self, command: Withdraw) -> None:
        """Give a job back. What it had not delivered is sampled again elsewhere, the same."""
        job = self._jobs.get(command.key)
        if job is None or (command.only_if_waiting and job.sequence.first_scheduled_at is not None):
            return
        self._scheduler.withdraw(job.sequence)
        self._forget(job)
        self._outputs.append(job.end(None, is_delivered=False))

    def step(self, now: float) -> StepReport:
        """Run one step, if there is anything to compute, and report all that changed since the last report."""
        self._expire(now)
        started = self._clock()
        plan = self._scheduler.schedule(now)
        if not plan.chunks:
            return self.report()
        stats = _measure(plan, self._clock() - started)
        result = self._read(self._runner.run(plan), now)
        finished_at = now + self._clock() - started
        self._deliver(self._scheduler.update(plan, result, finished_at), finished_at)
        return self.report(replace(stats, seconds=self._clock() - started))

    def report(self, step: StepStats | None = None) -> StepReport:
        """All that changed since the last report."""
        outputs = tuple(self._outputs)
        self._outputs.clear()
        return StepReport(outputs, self._scheduler.stats(), step)

    def _job(self, command: Submit, now: float) -> ActiveJob:
        """Raises `JobRejected`."""
        prompt = self._tokenizer.encode(command)
        self._num_submitted += 1
        sequence = Sequence(
            number=self._num_submitted,
            key=command.key,
            sampling=command.sampling,
            token_ids=[*prompt, *command.output_token_ids],
            num_prompt_tokens=len(prompt),
            arrived_at=now,
            eos_token_ids=self._eos_token_ids,
            sharing_namespace=command.key.tenant,
        )
        detokenizer = Detokenizer(self._tokenizer.decode, prompt, command.sampling)
        expires_at = None if command.deadline_seconds is None else now + command.deadline_seconds
        job = ActiveJob(sequence, detokenizer, command.stream, expires_at)
        job.restore(command.output_text)
        return job

    def _start(self, job: ActiveJob, now: float) -> None:
        """Let the job wait for its turn, or end it if the output that it resumes from is complete."""
        self._scheduler.add(job.sequence)
        self._jobs[job.key] = job
        self._jobs_by_number[job.sequence.number] = job
        reason = FinishReason.STOP if job.detokenizer.found_stop else job.sequence.finish_reason
        if reason is not None:
            self._end(job, reason, now)

    def _expire(self, now: float) -> None:
        """What was generated before the deadline is delivered."""
        late = [job for job in self._jobs.values() if job.expires_at is not None and job.expires_at <= now]
        for job in late:
            self._end(job, FinishReason.EXPIRED, now)

    def _read(self, result: StepResult, now: float) -> StepResult:
        """The result with the tokens marked that complete a stop string."""
        sampled: dict[int, SampledToken] = {}
        for number, token in result.sampled.items():
            job = self._jobs_by_number[number]
            try:
                sampled[number] = replace(token, completes_stop=job.read(token))
            except Exception:
                logger.exception("job %s/%s cannot be detokenized", *job.key)
                error = ErrorInfo(ENGINE_ERROR, None, "the engine failed to read this job's output")
                self._end(job, FinishReason.ERROR, now, is_delivered=False, error=error)
        return StepResult(sampled)

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

    def _forget(self, job: ActiveJob) -> None:
        del self._jobs[job.key]
        del self._jobs_by_number[job.sequence.number]
        self._sampler.forget(job.sequence)


def _measure(plan: StepPlan, schedule_seconds: float) -> StepStats:
    """The plan's numbers, before `update` changes the sequences that they come from."""
    num_prefill_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.is_prefill)
    return StepStats(
        number=plan.number,
        seconds=0.0,
        schedule_seconds=schedule_seconds,
        num_prefill_tokens=num_prefill_tokens,
        num_decode_tokens=plan.num_tokens - num_prefill_tokens,
        num_sequences=len(plan.chunks),
    )
