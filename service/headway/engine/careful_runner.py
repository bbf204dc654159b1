"""A step that fails costs the sequence at fault, not the batch: halves are tried until it stands alone.

    step of 8 fails ─┬─ 4 ✓
                     └─ 4 fail ─┬─ 2 fail ─┬─ 1 fails    this one ends, with the reason
                                └─ 2 ✓     └─ 1 ✓        the others have their tokens, in the same step

Running a part of a step again is harmless: it writes the same keys and values into the same slots, and sequences do not
depend on each other within a step. One culprit among n costs about three times the step, once.

**Too little memory** is the fault of the amount, not of a sequence: a part of one sequence is halved as well, down to a
token, and the steps that follow are run in parts of what did fit. After a while more is tried again. Only a sequence
that does not fit by single tokens ends.

**A broken engine must not be blamed on jobs**: it would end one job after the other as failed. So a sequence is only
blamed if something else can be computed: others in the same step, or, a few times in a row, something before. Else the
fault is raised, the child ends and another begins. That is also the way out for a device that has stopped computing.

A step may be launched while others are in flight. One that fails then, when it is launched or when it is read, is not
looked into there: it is run again, as above, when those before it have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field, replace

import torch

from headway.core.batch import SampledToken, ScheduledChunk, StepPlan, StepResult
from headway.core.errors import EngineBroken, EngineError, HeadwayError
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence, SequenceStatus
from headway.engine.runner import PendingStep, Runner

logger = logging.getLogger(__name__)

MAX_BLAMED_IN_A_ROW = 2
"""Sequences that may fail with nothing computed between them; one more is taken for a fault of the engine."""
NUM_STEPS_TO_GROW = 256
"""Steps without a lack of memory after which twice as much is tried at once."""
NUM_REHEARSED = 3
MAX_REASON_CHARACTERS = 300
BLAME = "the engine failed at this job: "
LACKS = ("can't allocate memory", "out of memory", "STATUS_ALLOC_FAILED")
"""What errors without a type of their own say when memory is short."""


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: str
    is_lack_of_memory: bool


@dataclass(slots=True)
class _Trial:
    """What the parts of one step have come to."""

    sampled: dict[int, SampledToken] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    has_computed: bool = False
    """Whether at least one sequence was computed."""
    smallest_lack: int | None = None
    """Tokens of the smallest part that there was too little memory for."""
    has_hog: bool = False
    """Whether a single sequence was too much, token by token: then the amount was not at fault."""

    def add(self, chunks: Rows[ScheduledChunk], result: StepResult) -> None:
        self.sampled.update(result.sampled)
        self.failed.update(result.failed)
        self.has_computed |= len(result.failed) < len(chunks)


class CarefulRunner:
    """Runs plans as `Runner` does, whatever single sequences do to it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._max_tokens: int | None = None
        """Most tokens to compute at once; None: memory was never short."""
        self._num_steps_to_grow = NUM_STEPS_TO_GROW
        self._num_blamed_in_a_row = 0
        self._has_computed = False

    def run(self, plan: StepPlan) -> StepResult:
        """Every sequence of the plan is computed, or is in ``failed``. Raises `EngineError` if the engine is broken."""
        trial = _Trial()
        for part in self._parts(plan):
            self._attempt(part, trial)
        return self._conclude(trial)

    def launch(self, plan: StepPlan) -> PendingStep | None:
        """Begin a step behind those in flight. None if it has to be run by itself, with `run`."""
        if self._max_tokens is not None and plan.num_tokens > self._max_tokens:
            return None
        try:
            return self._runner.launch(plan)
        except EngineBroken:
            raise
        except Exception:
            logger.warning("a step of %d sequences cannot be launched", len(plan.chunks), exc_info=True)
            return None

    def finish(self, plan: StepPlan, step: PendingStep) -> StepResult | None:
        """What `launch` began, when it has ended. None if it failed, and has to be run again, with `run`: then what was
        launched after it has read what is not there, and has to be run again too. Raises as `run` does."""
        try:
            result = step.result()
        except EngineBroken:
            raise
        except Exception:
            logger.warning("a step of %d sequences failed in flight", len(plan.chunks), exc_info=True)
            return None
        ended = {c.sequence.number for c in plan.chunks if c.sequence.status is SequenceStatus.FINISHED}
        failed = {number: reason for number, reason in result.failed.items() if number not in ended}
        trial = _Trial()
        trial.add(plan.chunks, StepResult(result.sampled, failed))
        return self._conclude(trial)

    def _conclude(self, trial: _Trial) -> StepResult:
        """Learn from the step. Raises `EngineError` if it shows that the engine is broken."""
        self._judge(trial)
        if trial.smallest_lack is not None and not trial.has_hog:
            self._shrink(trial.smallest_lack // 2)
        else:
            self._grow()
        return StepResult(trial.sampled, trial.failed)

    def rehearse(self, vocab_size: int, num_pages: int) -> None:
        """Compute a few sequences of one token, while all pages are free. Raises `EngineError` if none can be."""
        tokens = sorted({0, vocab_size // 2, vocab_size - 1})[: min(NUM_REHEARSED, num_pages)]
        self.run(StepPlan(0, tuple(_rehearsed(page, token) for page, token in enumerate(tokens))))

    def _parts(self, plan: StepPlan) -> list[Rows[ScheduledChunk]]:
        """The chunks of the plan, at most ``max_tokens`` at once if memory was short; no sequence twice in a part."""
        if self._max_tokens is None or plan.num_tokens <= self._max_tokens:
            return [plan.chunks]
        parts: list[list[ScheduledChunk]] = []
        num_tokens_left = 0
        for chunk in plan.chunks:
            rest: ScheduledChunk | None = chunk
            while rest is not None:
                if not num_tokens_left:
                    parts.append([])
                    num_tokens_left = self._max_tokens
                first, rest = _split(rest, num_tokens_left)
                parts[-1].append(first)
                num_tokens_left -= first.num_tokens
        return list(parts)

    def _attempt(self, chunks: Rows[ScheduledChunk], trial: _Trial) -> None:
        """Compute these; of what fails, one half and then the other, which may read what the first has written."""
        chunks = [chunk for chunk in chunks if chunk.sequence.number not in trial.failed]
        fault = self._try(chunks, trial) if chunks else None
        if fault is None:
            return
        num_tokens = sum(chunk.num_tokens for chunk in chunks)
        if fault.is_lack_of_memory:
            trial.smallest_lack = min(num_tokens, trial.smallest_lack or num_tokens)
        if len(chunks) > 1:
            middle = len(chunks) // 2
            halves: list[Rows[ScheduledChunk]] = [chunks[:middle], chunks[middle:]]
        elif fault.is_lack_of_memory and num_tokens > 1:
            halves = [[half] for half in _split(chunks[0], num_tokens // 2) if half is not None]
        else:
            trial.failed[chunks[0].sequence.number] = BLAME + fault.reason
            trial.has_hog |= fault.is_lack_of_memory
            return
        for half in halves:
            self._attempt(half, trial)

    def _try(self, chunks: Rows[ScheduledChunk], trial: _Trial) -> _Fault | None:
        """None: computed. The exception is gone when this returns, and with it what its frames held of the memory."""
        try:
            result = self._runner.run(StepPlan(0, tuple(chunks)))
        except EngineBroken:
            raise
        except Exception as exc:
            logger.warning("a step of %d sequences failed", len(chunks), exc_info=True)
            fault = _Fault(_describe(exc), _is_lack_of_memory(exc))
        else:
            trial.add(chunks, result)
            return None
        self._runner.free_memory()
        if not self._runner.is_device_sound():
            raise EngineError(f"the device has stopped computing: {fault.reason}")
        return fault

    def _judge(self, trial: _Trial) -> None:
        """Whether what failed is the fault of the sequences. Raises `EngineError` if it may be the engine's."""
        if trial.has_computed:
            self._has_computed, self._num_blamed_in_a_row = True, 0
        elif trial.failed:
            self._num_blamed_in_a_row += len(trial.failed)
            may_be_the_engine = not self._has_computed or len(trial.failed) > 1
            if may_be_the_engine or self._num_blamed_in_a_row > MAX_BLAMED_IN_A_ROW:
                reason = next(iter(trial.failed.values())).removeprefix(BLAME)
                raise EngineError(f"nothing can be computed: {reason}")

    def _shrink(self, max_tokens: int) -> None:
        """From the next step on."""
        logger.warning("memory is short: from now on at most %d tokens are computed at once", max_tokens)
        self._max_tokens = max_tokens
        self._num_steps_to_grow = NUM_STEPS_TO_GROW

    def _grow(self) -> None:
        if self._max_tokens is None:
            return
        self._num_steps_to_grow -= 1
        if not self._num_steps_to_grow:
            self._num_steps_to_grow = NUM_STEPS_TO_GROW
            self._max_tokens *= 2


def _split(chunk: ScheduledChunk, num_tokens: int) -> tuple[ScheduledChunk, ScheduledChunk | None]:
    """Its first ``num_tokens`` tokens, and the rest if there is one."""
    if chunk.num_tokens <= num_tokens:
        return chunk, None
    first = replace(chunk, num_tokens=num_tokens, is_sampled=False)
    return first, replace(chunk, start=first.end, num_tokens=chunk.num_tokens - num_tokens)


def _is_lack_of_memory(exc: Exception) -> bool:
    """torch's allocator says it with a type on a GPU; it says it in words on a CPU, and so do the driver, when it loads
    a kernel or pins memory, and cuBLAS."""
    is_typed = isinstance(exc, MemoryError | torch.OutOfMemoryError)
    return is_typed or (isinstance(exc, RuntimeError) and any(words in str(exc) for words in LACKS))


def _describe(exc: Exception) -> str:
    """One line, which the job's owner reads: the kind of fault, and the first line that says more."""
    text = str(exc) if isinstance(exc, HeadwayError) else f"{type(exc).__name__}: {exc}".rstrip(": ")
    return text.splitlines()[0][:MAX_REASON_CHARACTERS]


def _rehearsed(page: int, token: int) -> ScheduledChunk:
    sequence = Sequence(
        number=-1 - page,
        key=JobKey("rehearsal", str(token)),
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
        token_ids=[token],
        num_prompt_tokens=1,
        arrived_at=0.0,
        eos_token_ids=frozenset(),
        sharing_namespace="",
    )
    sequence.page_table = [page]
    return ScheduledChunk(sequence, 0, 1, is_sampled=True)
