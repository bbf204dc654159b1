"""What a job costs before its first step: its prompt becomes token ids, and a resumed job's output is read again.

Both take time in proportion to the job's text, up to a second or more, and need nothing of the engine's state. So the
engine child does them in a thread of their own, beside the steps of the other jobs:

    Submit ─▶ Engine.announce ─ Arrival ─▶ PreparingThread: Preparer.prepare ─ Prepared ─▶ Engine.start
                   │                                                                           ▲
                   └── a cancel, a recall or a deadline ends it meanwhile: it is dropped ──────┘

Only the thread that steps changes what an arrival is, so orders about one job take effect in the order they come in.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headway.core.errors import JobRejected
from headway.core.job import FinishReason, JobKey
from headway.core.records import ErrorInfo, Usage
from headway.core.sequence import Sequence
from headway.engine.active_job import ActiveJob
from headway.engine.detokenizer import Detokenizer
from headway.engine.messages import SequenceOutput, Submit
from headway.engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

ENGINE_ERROR = "engine_error"
"""``error.code`` of a job that failed by a fault of ours."""
LONG_TEXT_CHARACTERS = 2**16
"""Longer texts let the others go first; this much takes tens of milliseconds."""
CHARACTERS_PER_TOKEN = 4
"""A rough guess, for a text that is not tokenized yet."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A job that the engine knows of and has not started."""

    command: Submit
    arrived_at: float
    is_dropped: bool = False
    """It has ended already, so whatever is prepared of it is thrown away."""

    @property
    def key(self) -> JobKey:
        return self.command.key

    @property
    def expires_at(self) -> float | None:
        seconds = self.command.deadline_seconds
        return None if seconds is None else self.arrived_at + seconds

    @property
    def num_characters(self) -> int:
        """Of its text; 0 for token ids."""
        prompt, messages = self.command.prompt, self.command.messages or ()
        own = len(prompt) if isinstance(prompt, str) else 0
        return own + sum(len(message.content) for message in messages) + len(self.command.output_text)

    @property
    def num_tokens(self) -> int:
        """As far as they can be told from outside."""
        num_ids = len(self.command.prompt) if isinstance(self.command.prompt, tuple) else 0
        return num_ids + self.num_characters // CHARACTERS_PER_TOKEN + 1

    def end(self, reason: FinishReason | None, error: ErrorInfo | None = None) -> SequenceOutput:
        """The only output of a job that never started. No reason: it is handed back."""
        usage = Usage(completion_tokens=len(self.command.output_token_ids))
        return SequenceOutput(self.key, finish_reason=reason, error=error, withdrawn=reason is None, usage=usage)


class Prepared(NamedTuple):
    """What became of an arrival: a job that is ready to run, or the only output that it gets."""

    arrival: Arrival
    outcome: ActiveJob | SequenceOutput


class Preparer:
    """Makes jobs ready, one at a time, in any thread."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        self._numbers = itertools.count(1)

    def prepare(self, arrival: Arrival) -> Prepared:
        """Never raises: what goes wrong is that job's outcome."""
        try:
            return Prepared(arrival, self._job(arrival))
        except JobRejected as rejected:
            return Prepared(arrival, reject(arrival, rejected))
        except Exception:
            logger.exception("job %s/%s cannot be taken", *arrival.key)
            error = ErrorInfo(ENGINE_ERROR, None, "the engine failed to take this job")
            return Prepared(arrival, arrival.end(FinishReason.ERROR, error))

    def _job(self, arrival: Arrival) -> ActiveJob:
        """Raises `JobRejected`."""
        command = arrival.command
        prompt = self._tokenizer.encode(command)
        sequence = Sequence(
            number=next(self._numbers),
            key=command.key,
            sampling=command.sampling,
            token_ids=[*prompt, *command.output_token_ids],
            num_prompt_tokens=len(prompt),
            arrived_at=arrival.arrived_at,
            eos_token_ids=self._eos_token_ids,
            sharing_namespace=command.key.tenant,
        )
        detokenizer = Detokenizer(self._tokenizer.decode, prompt, command.sampling)
        job = ActiveJob(sequence, detokenizer, command.stream, arrival.expires_at)
        job.restore(command.output_text)
        return job


def reject(arrival: Arrival, rejected: JobRejected) -> SequenceOutput:
    error = ErrorInfo(rejected.code, rejected.field, rejected.message)
    return arrival.end(FinishReason.REJECTED, error)


class PreparingThread:
    """Prepares arrivals one after the other; ``done`` is called in its thread.

    First come, first served; but long texts only while no other waits, so that a burst of them delays the other jobs by
    one text at the most.
    """

    def __init__(self, prepare: Callable[[Arrival], Prepared], done: Callable[[Prepared], None]) -> None:
        self._prepare = prepare
        self._done = done
        self._numbers = itertools.count()
        self._places: queue.PriorityQueue[_Place] = queue.PriorityQueue()
        threading.Thread(target=self._run, name="prepare-jobs", daemon=True).start()

    def put(self, arrival: Arrival) -> None:
        is_long = arrival.num_characters > LONG_TEXT_CHARACTERS
        self._places.put(_Place(is_long, next(self._numbers), arrival))

    def _run(self) -> None:
        while True:
            arrival = self._places.get().arrival
            if not arrival.is_dropped:
                self._done(self._prepare(arrival))


class _Place(NamedTuple):
    """Places sort by their first two fields: no two have the same number."""

    is_long: bool
    number: int
    arrival: Arrival
