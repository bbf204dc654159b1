"""One attempt at one job on this worker: what it has done so far, and what its end will say."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from dataclasses import dataclass, field

from headway.broker.log_writer import LogWriter
from headway.core.job import FinishReason, Job
from headway.core.lease_messages import Grant
from headway.core.records import Attempt, End, ErrorInfo, Timings, Usage
from headway.engine.messages import SequenceOutput, Submit
from headway.telemetry.clock import monotonic_period
from headway.telemetry.traced import Period, TracedAttempt, TracedJob


@dataclass(slots=True, eq=False)
class JobRun:
    """Facts about one attempt. Times are CLOCK_MONOTONIC seconds."""

    grant: Grant
    job: Job
    writer: LogWriter
    granted_at: float = field(default_factory=time.monotonic)
    in_engine: bool = False
    cancelling: FinishReason | None = None
    """The end that was asked for before the engine had the job."""
    returning: str | None = None
    """Why it goes back, asked for before the engine had it."""
    left_engine: asyncio.Event = field(default_factory=asyncio.Event)
    """The engine has said its last word about it."""
    num_resumed_tokens: int = 0
    """Output of earlier attempts."""
    num_output_tokens: int = 0
    """Of this attempt."""
    first_output_at: float | None = None
    """When its first tokens were heard of here, and its newest: what is known of an engine that dies."""
    last_output_at: float | None = None
    usage: Usage = field(default_factory=Usage)
    text: list[str] = field(default_factory=list)

    @property
    def num_lost_attempts(self) -> int:
        """As its log counts them, without this attempt, which is in the log already."""
        return self.writer.state.num_counted_attempts - 1

    def attempt(self, worker: str) -> Attempt:
        """The record that takes the log over; the writer sets its number."""
        return Attempt(0, self.grant.token, worker, self.job.payload_hash)

    def submit(self) -> Submit:
        """For the engine, to go on from what the log holds."""
        state = self.writer.state
        self.num_resumed_tokens = len(state.output_token_ids)
        waited = time.monotonic() - self.granted_at
        deadline = self.grant.deadline_seconds
        return Submit(
            key=self.grant.key,
            sampling=self.job.sampling,
            prompt=self.job.prompt,
            messages=self.job.messages,
            output_token_ids=tuple(state.output_token_ids),
            output_text=state.output_text,
            stream=self.job.stream,
            deadline_seconds=None if deadline is None else deadline - waited,
        )

    def note(self, output: SequenceOutput) -> None:
        """Counts what one step gave."""
        self.num_output_tokens += len(output.token_ids)
        if output.token_ids:
            self.last_output_at = time.monotonic()
            self.first_output_at = self.first_output_at or self.last_output_at
        self.text.append(output.text)
        if output.usage is not None:
            self.usage = output.usage

    def end(self, reason: FinishReason, error: ErrorInfo | None, last: SequenceOutput | None) -> End:
        """The record that ends the job. ``last``: the engine's last word; None if it never had the job."""
        usage = self.usage if last is not None else Usage(completion_tokens=len(self.writer.state.output_token_ids))
        return End(reason, error, usage, self._timings(last))

    def traced_job(self) -> TracedJob:
        grant = self.grant
        return TracedJob(grant.key, self.job.model, grant.stream_sequence, grant.arrival_seconds, grant.traceparent)

    def traced_attempt(self, worker: str, last: SequenceOutput) -> TracedAttempt:
        return TracedAttempt(
            number=self.writer.state.num_attempts,
            grant=self.grant.token,
            worker=worker,
            prefill=self._period(self.granted_at, last.first_token_at),
            decode=self._period(last.first_token_at, last.last_token_at),
            usage=self.usage,
            finish_reason=last.finish_reason,
            prompt=str(self.job.prompt if self.job.messages is None else self.job.messages),
            output="".join(self.text),
        )

    def lost_attempt(self, worker: str, reason: str) -> TracedAttempt:
        """Without the engine's last word: by what came of it before it died."""
        num_tokens = self.num_resumed_tokens + self.num_output_tokens
        return TracedAttempt(
            number=self.writer.state.num_attempts,
            grant=self.grant.token,
            worker=worker,
            prefill=self._period(self.granted_at, self.first_output_at or time.monotonic()),
            decode=self._period(self.first_output_at, self.last_output_at),
            usage=dataclasses.replace(self.usage, completion_tokens=num_tokens),
            lost=reason,
        )

    def _timings(self, last: SequenceOutput | None) -> Timings:
        first_token_at = last.first_token_at if last is not None else None
        last_token_at = last.last_token_at if last is not None else None
        return Timings(
            queue_seconds=self.grant.queue_seconds,
            prefill_seconds=_difference(self.granted_at, first_token_at),
            decode_seconds=_difference(first_token_at, last_token_at),
        )

    @staticmethod
    def _period(start: float | None, end: float | None) -> Period | None:
        return None if start is None or end is None else monotonic_period(start, end)


def _difference(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else max(0.0, end - start)
