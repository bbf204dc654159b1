"""A fake engine: the real scheduler and page pool around a model that is a hash of its tokens."""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headway.core.batch import SampledToken, ScheduledChunk, StepOutcome, StepPlan, StepResult
from headway.core.job import JobKey, SamplingParams
from headway.core.pages import PagePool
from headway.core.scheduler import PrefixSharing, Scheduler, SchedulerConfig
from headway.core.sequence import Sequence, SequenceStatus

VOCAB_SIZE = 50
EOS = 0


def next_token(token_ids: Iterable[int]) -> int:
    """Depends on every token before it, so a wrong, missing or misplaced one changes all that follow."""
    return zlib.crc32(repr(list(token_ids)).encode()) % VOCAB_SIZE


@dataclass
class FakeEngine:
    """Runs steps on virtual time: ``now`` is the number of steps that were begun.

    Its KV memory holds, in the slot of each token, that token and a hash of all tokens before it: as real keys and
    values do, it depends on the whole prefix. A step reads the memory through the page tables, as attention would, and
    samples when it is launched; the scheduler hears of it later if there are more steps in flight than one.
    """

    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    num_pages: int = 1000
    page_size: int = 16
    max_model_len: int = 200_000
    checks_memory: bool = True
    """Off: faster, for prompts of many thousands of tokens."""
    max_steps_in_flight: int = 1
    choose: Callable[[Sequence], int] = lambda sequence: next_token(sequence.token_ids)

    def __post_init__(self) -> None:
        self.pool = PagePool(self.num_pages, self.page_size)
        self.scheduler = Scheduler(self.config, self.pool, self.max_model_len)
        self.memory: dict[int, int] = {}
        self._contents: dict[int, list[int]] = {}
        self.sequences: list[Sequence] = []
        self.plans: list[StepPlan] = []
        self.outcomes: list[StepOutcome] = []
        self.now = 0.0
        self.wasted: Counter[int] = Counter()
        """Rows of each sequence that were computed after its end."""
        self._flights: deque[tuple[StepPlan, StepResult]] = deque()
        self._pending: dict[int, deque[int]] = {}
        """By sequence, the tokens that only the device knows."""

    @property
    def has_work(self) -> bool:
        return bool(self._flights) or self.scheduler.has_work

    def add(
        self, prompt: int | list[int], max_tokens: int = 10, output: Iterable[int] = (), **options: Any
    ) -> Sequence:
        """``prompt``: its token ids, or only how many there are. ``options`` are those of `SamplingParams`, and
        ``tenant``."""
        number = len(self.sequences)
        tenant = options.pop("tenant", "acme")
        prompt_ids = [1 + (number + 1) * (i + 1) % 40 for i in range(prompt)] if isinstance(prompt, int) else prompt
        sequence = Sequence(
            number=number,
            key=JobKey(tenant, f"job{number}"),
            sampling=SamplingParams(max_tokens=max_tokens, **options),
            token_ids=[*prompt_ids, *output],
            num_prompt_tokens=len(prompt_ids),
            arrived_at=self.now,
            eos_token_ids=frozenset({EOS}),
            sharing_namespace=tenant,
        )
        self.scheduler.add(sequence)
        self.sequences.append(sequence)
        return sequence

    def step(self) -> StepPlan:
        """Launch until as many steps are in flight as may be, and end the oldest. Returns the newest plan."""
        plan = self.launch()
        while plan.chunks and len(self._flights) < self.max_steps_in_flight:
            plan = self.launch()
        self.now += 1.0
        self.finish()
        return plan

    def launch(self) -> StepPlan:
        plan = self.scheduler.schedule(self.now)
        self.plans.append(plan)
        if self.checks_memory:
            for chunk in plan.chunks:
                self._write(chunk)
            for chunk in plan.chunks:
                self._read(chunk)
        sampled = {}
        for chunk in plan.chunks:
            if chunk.is_sampled:
                token = self.choose(replace(chunk.sequence, token_ids=self._token_ids(chunk)))
                self._pending.setdefault(chunk.sequence.number, deque()).append(token)
                sampled[chunk.sequence.number] = SampledToken(token)
        if plan.chunks:
            self._flights.append((plan, StepResult(sampled)))
        return plan

    def finish(self) -> None:
        """End the oldest step in flight, if there is one."""
        if not self._flights:
            return
        plan, result = self._flights.popleft()
        for chunk in plan.chunks:
            self.wasted[chunk.sequence.number] += chunk.sequence.status is SequenceStatus.FINISHED
        for number in result.sampled:
            self._pending[number].popleft()
        self.outcomes.append(self.scheduler.update(plan, result, self.now))

    def run(self, max_steps: int = 10_000) -> None:
        """Until there is nothing to do."""
        while self.has_work:
            assert len(self.plans) < max_steps, "no end in sight"
            self.step()
            self.scheduler.check_integrity()

    def output_alone(self, prompt: list[int], max_tokens: int, ignore_eos: bool = False) -> list[int]:
        """What the model makes of the prompt, one token after the other, with no scheduler."""
        output: list[int] = []
        while len(output) < max_tokens and (ignore_eos or EOS not in output):
            output.append(next_token([*prompt, *output]))
        return output

    def last_step(self, sequence: Sequence) -> int:
        """The number of the step that ended it, from 1."""
        assert sequence.status is SequenceStatus.FINISHED
        assert sequence.finished_at is not None
        return int(sequence.finished_at)

    def _token_ids(self, chunk: ScheduledChunk) -> list[int]:
        """Up to the chunk's end, as the device knows them."""
        known = chunk.sequence.token_ids
        return [*known, *self._pending.get(chunk.sequence.number, ())][: chunk.end]

    def _write(self, chunk: ScheduledChunk) -> None:
        contents = self._contents_of(chunk)
        for position in range(chunk.start, chunk.end):
            self.memory[self._slot(chunk.sequence, position)] = contents[position]

    def _read(self, chunk: ScheduledChunk) -> None:
        held = [self.memory.get(self._slot(chunk.sequence, position)) for position in range(chunk.end)]
        assert held == self._contents_of(chunk)[: chunk.end], "wrong keys and values under a page table"

    def _slot(self, sequence: Sequence, position: int) -> int:
        return sequence.page_table[position // self.page_size] * self.page_size + position % self.page_size

    def _contents_of(self, chunk: ScheduledChunk) -> list[int]:
        """For each token up to the chunk's end a hash of it and all before it, in its namespace."""
        sequence = chunk.sequence
        contents = self._contents.setdefault(sequence.number, [])
        namespace = "" if self.config.prefix_sharing is PrefixSharing.ALL else sequence.sharing_namespace
        for token in self._token_ids(chunk)[len(contents) :]:
            contents.append(hash((contents[-1] if contents else namespace, token)))
        return contents


@pytest.fixture(scope="session")
def fake_engine() -> type[FakeEngine]:
    """The class, not an object: a property test needs a fresh one for each example."""
    return FakeEngine
