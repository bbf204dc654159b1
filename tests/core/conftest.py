"""A fake engine: the real scheduler and page pool around a model that is a hash of its tokens."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
    """Runs steps on virtual time: ``now`` is the number of the step.

    Its KV memory holds, in the slot of each token, that token and a hash of all tokens before it: as real keys and
    values do, it depends on the whole prefix. A step reads the memory through the page tables, as attention would.
    """

    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    num_pages: int = 1000
    page_size: int = 16
    max_model_len: int = 200_000
    checks_memory: bool = True
    """Off: faster, for prompts of many thousands of tokens."""
    choose: Callable[[Sequence], int] = lambda sequence: next_token(sequence.token_ids)

    def __post_init__(self) -> None:
        self.pool = PagePool(self.num_pages, self.page_size)
        self.scheduler = Scheduler(self.config, self.pool, self.max_model_len)
        self.memory: dict[int, int] = {}
        self._contents: dict[int, list[int]] = {}
        self.sequences: list[Sequence] = []
        self.plans: list[StepPlan] = []
        self.outcomes: list[StepOutcome] = []

    @property
    def now(self) -> float:
        return float(len(self.plans))

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
        plan = self.scheduler.schedule(self.now)
        self.plans.append(plan)
        sampled = {}
        if self.checks_memory:
            for chunk in plan.chunks:
                self._write(chunk)
            for chunk in plan.chunks:
                self._read(chunk)
        for chunk in plan.chunks:
            if chunk.is_sampled:
                sampled[chunk.sequence.number] = SampledToken(self.choose(chunk.sequence))
        self.outcomes.append(self.scheduler.update(plan, StepResult(sampled), self.now))
        return plan

    def run(self, max_steps: int = 10_000) -> None:
        """Until there is nothing to do."""
        while self.scheduler.has_work:
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

    def _write(self, chunk: ScheduledChunk) -> None:
        contents = self._contents_of(chunk.sequence)
        for position in range(chunk.start, chunk.end):
            self.memory[self._slot(chunk.sequence, position)] = contents[position]

    def _read(self, chunk: ScheduledChunk) -> None:
        held = [self.memory.get(self._slot(chunk.sequence, position)) for position in range(chunk.end)]
        assert held == self._contents_of(chunk.sequence)[: chunk.end], "wrong keys and values under a page table"

    def _slot(self, sequence: Sequence, position: int) -> int:
        return sequence.page_table[position // self.page_size] * self.page_size + position % self.page_size

    def _contents_of(self, sequence: Sequence) -> list[int]:
        """For each token a hash of it and all before it, in its namespace."""
        contents = self._contents.setdefault(sequence.number, [])
        namespace = "" if self.config.prefix_sharing is PrefixSharing.ALL else sequence.sharing_namespace
        for token in sequence.token_ids[len(contents) :]:
            contents.append(hash((contents[-1] if contents else namespace, token)))
        return contents


@pytest.fixture(scope="session")
def fake_engine() -> type[FakeEngine]:
    """The class, not an object: a property test needs a fresh one for each example."""
    return FakeEngine
