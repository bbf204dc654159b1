"""The real scheduler on a machine whose steps take simulated time: true costs, noise, and now and then a long stop."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

from headway.core.batch import SampledToken, StepPlan, StepResult
from headway.core.job import JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.scheduler import Scheduler, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step_cost import StepWork

MAX_STEPS = 50_000


@dataclass(frozen=True)
class Machine:
    """Seconds per unit of `StepWork`; the defaults are about those of the default model on two cores."""

    step: float = 0.006
    token: float = 0.0006
    decode: float = 0.0008
    context: float = 4e-7
    pair: float = 2e-7
    noise: float = 0.0
    """Standard deviation, as a share of the time."""
    stop_every: int | None = None
    """Steps between two in which the process is stopped for `STOP_SECONDS`."""

    def seconds(self, work: StepWork) -> float:
        return (
            self.step
            + self.token * work.num_prefill_tokens
            + self.decode * work.num_decodes
            + self.context * work.num_context_tokens
            + self.pair * work.num_prefill_pairs
        )


STOP_SECONDS = 20.0


@dataclass
class TimedEngine:
    config: SchedulerConfig
    machine: Machine = Machine()
    num_pages: int = 4000
    page_size: int = 16
    seed: int = 1
    max_steps_in_flight: int = 1
    now: float = 100.0
    plans: list[StepPlan] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Of each step."""
    sequences: list[Sequence] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.config, PagePool(self.num_pages, self.page_size), max_model_len=8192)
        self._random = random.Random(self.seed)
        self._flights: deque[tuple[StepPlan, float, float]] = deque()
        """Steps in flight, with their seconds, and when they end."""

    def add(self, num_prompt_tokens: int, num_output_tokens: int, num_restored: int = 0, prefix: int = 0) -> Sequence:
        """``prefix``: tokens at its beginning that other sequences have too."""
        number = len(self.sequences)
        own = [1000 + number] * (num_prompt_tokens - prefix)
        sequence = Sequence(
            number=number,
            key=JobKey("acme", str(number)),
            sampling=SamplingParams(max_tokens=num_output_tokens, ignore_eos=True),
            token_ids=[*range(prefix), *own, *[7] * num_restored],
            num_prompt_tokens=num_prompt_tokens,
            arrived_at=self.now,
            sharing_namespace="acme",
        )
        self.scheduler.add(sequence)
        self.sequences.append(sequence)
        return sequence

    def step(self) -> StepPlan:
        """Launch until as many steps are in flight as may be, and wait for the oldest. Returns the newest plan."""
        plan = self._launch()
        while plan.chunks and len(self._flights) < self.max_steps_in_flight:
            plan = self._launch()
        oldest, seconds, self.now = self._flights.popleft()
        sampled = {chunk.sequence.number: SampledToken(5) for chunk in oldest.chunks if chunk.is_sampled}
        self.scheduler.update(oldest, StepResult(sampled, seconds=seconds), self.now)
        return plan

    def _launch(self) -> StepPlan:
        """It runs when those before it have ended."""
        plan = self.scheduler.schedule(self.now)
        if plan.chunks or not self._flights:
            seconds = self._take(plan)
            begins_at = self._flights[-1][2] if self._flights else self.now
            self._flights.append((plan, seconds, begins_at + seconds))
            self.plans.append(plan)
            self.seconds.append(seconds)
        return plan

    def run(self, *until: Sequence) -> None:
        """Until these have ended; by default, all."""
        for _ in range(MAX_STEPS):
            ended = all(sequence.status is SequenceStatus.FINISHED for sequence in until or self.sequences)
            if ended:
                return
            self.step()
            self.scheduler.check_integrity()
        raise AssertionError("no end in sight")

    def slow_down(self, factor: float) -> None:
        machine = self.machine
        names = ("step", "token", "decode", "context", "pair")
        self.machine = replace(machine, **{name: factor * getattr(machine, name) for name in names})

    def _take(self, plan: StepPlan) -> float:
        seconds = self.machine.seconds(StepWork.of(plan.chunks))
        seconds *= max(0.3, self._random.gauss(1.0, self.machine.noise))
        every = self.machine.stop_every
        return seconds + (STOP_SECONDS if every and len(self.plans) % every == every - 1 else 0.0)


def tpot(sequence: Sequence) -> float:
    """Mean seconds per token after the first one of this attempt."""
    assert sequence.first_token_at is not None
    assert sequence.finished_at is not None
    num_gaps = sequence.num_output_tokens - sequence.num_restored_tokens - 1
    return (sequence.finished_at - sequence.first_token_at) / num_gaps
