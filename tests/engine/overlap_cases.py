"""Random mixes of jobs, played on an engine with one step in flight and on one with two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st

from headway.core.batch import StepPlan, StepResult
from headway.core.job import FinishReason, JobKey, SamplingParams
from headway.core.records import TokenLogprobs
from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from headway.core.sequence import SequenceStatus
from headway.engine.build import assemble
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import Cancel, SequenceOutput, Submit, Withdraw

PAGE_SIZE = 4
BYTES_PER_TOKEN = 2 * 16 * 8  # one layer, keys and values of one head of 16, float64
VOCAB_SIZE = 512
EOS = 2
MAX_STEPS = 1_000


@dataclass(frozen=True)
class Job:
    """One of a mix, which arrives ``gap`` steps after the one before it."""

    gap: int
    tenant: str
    prefix: int
    """Tokens that all jobs begin with."""
    own: int
    sampling: SamplingParams
    stream: bool
    leaves_at: int | None
    """Steps after its arrival at which it leaves: exact for the client, but not the same token in both loops."""
    leaves_with: int | None
    """Tokens that it leaves with, as soon as it has had them: the same in both loops."""
    is_withdrawn: bool

    @property
    def may_differ(self) -> bool:
        return self.leaves_at is not None

    def submit(self, number: int) -> Submit:
        own = ((17 + 31 * number + 7 * i) % VOCAB_SIZE for i in range(self.own))
        prompt = (*range(20, 20 + self.prefix), *own)
        return Submit(self.key(number), self.sampling, prompt, None, stream=self.stream)

    def key(self, number: int) -> JobKey:
        return JobKey(self.tenant, str(number))


def _sampling(max_tokens: int, min_tokens: int, **others: object) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, min_tokens=min(min_tokens, max_tokens), **others)  # type: ignore[arg-type]


samplings = st.builds(
    _sampling,
    max_tokens=st.integers(1, 14),
    min_tokens=st.sampled_from([0, 0, 1, 4]),
    temperature=st.sampled_from([0.0, 0.0, 0.8, 1.5]),
    top_k=st.sampled_from([0, 0, 5]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.sampled_from([None, 3]),
    stop=st.sampled_from([(), (), ("e",), ("th", " a")]),
    stop_token_ids=st.sampled_from([(), tuple(range(300, 340))]),
    ignore_eos=st.booleans(),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.9]),
    logit_bias=st.sampled_from([(), ((EOS, 3.0),), ((EOS, 30.0), (301, 29.0))]),
    logprobs=st.sampled_from([None, None, 0, 2]),
)
jobs = st.builds(
    Job,
    gap=st.integers(0, 4),
    tenant=st.sampled_from(["acme", "bolt"]),
    prefix=st.integers(0, 24),
    own=st.integers(1, 20),
    sampling=samplings,
    stream=st.booleans(),
    leaves_at=st.one_of(st.none(), st.none(), st.integers(0, 12)),
    leaves_with=st.one_of(st.none(), st.none(), st.integers(1, 8)),
    is_withdrawn=st.booleans(),
)
configs = st.builds(
    SchedulerConfig,
    batching=st.sampled_from([Batching.CONTINUOUS, Batching.CONTINUOUS, Batching.STATIC]),
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(8, 48),
    max_prefill_chunk=st.integers(1, 8),
    page_watermark_low=st.just(0.0),
    page_watermark_high=st.sampled_from([0.0, 0.2]),
    prefix_sharing=st.sampled_from(PrefixSharing),
)
num_pages = st.integers(16, 30)
"""The longest sequence, of 24 + 20 + 14 tokens, needs 15."""


@dataclass(frozen=True)
class Answer:
    """What one job got, all its outputs together."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprobs, ...]
    reason: FinishReason | None
    num_prompt_tokens: int
    num_output_tokens: int

    @classmethod
    def of(cls, outputs: list[SequenceOutput]) -> Answer:
        usage = outputs[-1].usage
        assert usage is not None
        assert [output.finish_reason is not None or output.withdrawn for output in outputs].count(True) == 1
        return cls(
            tuple(token for output in outputs for token in output.token_ids),
            "".join(output.text for output in outputs),
            tuple(entry for output in outputs for entry in output.logprobs or ()),
            outputs[-1].finish_reason,
            usage.prompt_tokens,
            usage.completion_tokens,
        )


@dataclass
class Player:
    """Plays a mix on one engine, on virtual time, and checks what must hold after every step."""

    engine: Engine
    mix: list[Job]
    max_steps_in_flight: int = 1
    now: int = 0
    outputs: dict[JobKey, list[SequenceOutput]] = field(default_factory=dict)
    wasted: Counter[int] = field(default_factory=Counter)
    """Rows of each sequence that were computed after its end."""
    arrived_at: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._watch(self.engine._scheduler.update)

    def _watch(self, update: Callable) -> None:
        def watched(plan: StepPlan, result: StepResult, now: float):
            for chunk in plan.chunks:
                self.wasted[chunk.sequence.number] += chunk.sequence.status is SequenceStatus.FINISHED
            return update(plan, result, now)

        self.engine._scheduler.update = watched  # type: ignore[method-assign]

    def play(self) -> Player:
        at = 0
        due = []
        for number, job in enumerate(self.mix):
            at += job.gap
            due.append((at, number))
        while due or self.engine.has_work:
            assert self.now < MAX_STEPS, "no end in sight"
            while due and due[0][0] <= self.now:
                self._arrive(due.pop(0)[1])
            self._let_leave()
            self._step()
        self._check_end()
        return self

    def answer(self, number: int) -> Answer:
        return Answer.of(self.outputs[self.mix[number].key(number)])

    def _arrive(self, number: int) -> None:
        self.arrived_at[number] = self.now
        self.engine.submit(self.mix[number].submit(number), float(self.now))

    def _let_leave(self) -> None:
        for number, arrived_at in self.arrived_at.items():
            job = self.mix[number]
            is_late = job.leaves_at is not None and self.now >= arrived_at + job.leaves_at
            if is_late or (job.leaves_with is not None and self._num_generated(job.key(number)) >= job.leaves_with):
                key = job.key(number)
                self.engine.apply(Withdraw(key) if job.is_withdrawn else Cancel(key), float(self.now))

    def _num_generated(self, key: JobKey) -> int:
        """Tokens that the engine has read, shown or not."""
        active = self.engine._jobs.get(key)
        return 0 if active is None else active.sequence.num_output_tokens

    def _step(self) -> None:
        self.now += 1
        for output in self.engine.step(float(self.now)).outputs:
            self.outputs.setdefault(output.key, []).append(output)
        self.engine._scheduler.check_integrity()
        assert all(count < self.max_steps_in_flight for count in self.wasted.values())

    def _check_end(self) -> None:
        stats = self.engine.report().scheduler
        assert (stats.num_running, stats.num_waiting, stats.pages.num_used) == (0, 0, 0)
        assert not self.engine._sampler._penalties._slots
        assert not self.engine._jobs_by_number
        assert self.engine._pipeline.is_empty


def make_engine(loaded: LoadedModel, config: SchedulerConfig, num_pages: int, max_steps_in_flight: int) -> Engine:
    kv_memory = str(num_pages * PAGE_SIZE * BYTES_PER_TOKEN)
    engine_config = EngineConfig(page_size=PAGE_SIZE, kv_memory=kv_memory, native_kernels=AutoOrOff.OFF)
    return assemble(loaded, engine_config, config, lambda stage: None, max_steps_in_flight=max_steps_in_flight)


def play(
    loaded: LoadedModel, config: SchedulerConfig, num_pages: int, mix: list[Job], max_steps_in_flight: int
) -> Player:
    engine = make_engine(loaded, config, num_pages, max_steps_in_flight)
    return Player(engine, mix, max_steps_in_flight).play()


def assert_same(overlapped: Answer, plain: Answer) -> None:
    assert replace(overlapped, logprobs=()) == replace(plain, logprobs=())
    assert_alike(overlapped, plain)


def assert_alike(one: Answer, other: Answer) -> None:
    """As far as both go."""
    assert all(a == b for a, b in zip(one.token_ids, other.token_ids, strict=False))
    assert one.text.startswith(other.text) or other.text.startswith(one.text)
    for ours, theirs in zip(one.logprobs, other.logprobs, strict=False):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-9)
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        assert [value for _, value in ours.top] == pytest.approx([value for _, value in theirs.top], abs=1e-9)
