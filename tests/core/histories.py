"""Histories of jobs that arrive, leave and are preempted, to be played on any fake engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from headway.core.job import FinishReason
from headway.core.scheduler import Batching, PrefixSharing, SchedulerConfig
from headway.core.sequence import SequenceStatus

MAX_STEPS = 1_500


@dataclass(frozen=True)
class Arrival:
    """A job that arrives ``gap`` steps after the one before."""

    gap: int
    tenant: str
    prefix: int
    """Tokens of a prefix that all jobs have in common."""
    num_own_tokens: int
    max_tokens: int
    num_restored: int
    """Output tokens that it brings from an earlier attempt."""
    leaves_after: int | None
    """Steps after its arrival at which it is cancelled, or withdrawn if ``is_withdrawn``."""
    is_withdrawn: bool
    ignore_eos: bool


ANY_ARRIVAL = {
    "gap": st.integers(0, 6),
    "tenant": st.sampled_from(["acme", "bolt"]),
    "prefix": st.integers(0, 30),
    "num_own_tokens": st.integers(1, 20),
    "max_tokens": st.integers(1, 30),
    "num_restored": st.integers(0, 8),
    "leaves_after": st.one_of(st.none(), st.integers(0, 40)),
    "is_withdrawn": st.booleans(),
    "ignore_eos": st.booleans(),
}
ANY_CONFIG = {
    "batching": st.sampled_from(Batching),
    "max_num_seqs": st.integers(1, 6),
    "max_num_batched_tokens": st.integers(8, 40),
    "max_prefill_chunk": st.integers(1, 8),
    "page_watermark_low": st.sampled_from([0.0, 0.1]),
    "page_watermark_high": st.sampled_from([0.1, 0.3]),
    "max_preemptions": st.integers(0, 3),
    "prefix_sharing": st.sampled_from(PrefixSharing),
}
arrivals = st.builds(Arrival, **ANY_ARRIVAL)
configs = st.builds(SchedulerConfig, **ANY_CONFIG)

# Many at a time that grow by much: nearly every history preempts.
growing_arrivals = st.builds(
    Arrival, **{**ANY_ARRIVAL, "gap": st.integers(0, 1), "max_tokens": st.integers(25, 40), "ignore_eos": st.just(True)}
)
crowding_configs = st.builds(
    SchedulerConfig,
    **{
        **ANY_CONFIG,
        "batching": st.just(Batching.CONTINUOUS),
        "max_num_seqs": st.integers(4, 8),
        "page_watermark_low": st.just(0.0),
        "page_watermark_high": st.just(0.0),
    },
)
num_pages = st.integers(24, 40)
"""Of 4 tokens; the longest sequence (30 + 20 + 40 tokens) needs 23."""


def add(engine, arrival: Arrival, number: int):
    prompt = [*range(1, arrival.prefix + 1), *(40 + (number + i) % 9 for i in range(arrival.num_own_tokens))]
    output = expected_output(engine, prompt, arrival)[: min(arrival.num_restored, arrival.max_tokens)]
    return engine.add(
        prompt, max_tokens=arrival.max_tokens, output=output, tenant=arrival.tenant, ignore_eos=arrival.ignore_eos
    )


def expected_output(engine, prompt: list[int], arrival: Arrival) -> list[int]:
    return engine.output_alone(prompt, arrival.max_tokens, arrival.ignore_eos)


def play(engine, history: list[Arrival], step: Callable) -> None:
    """Run the history to its end, with all invariants checked after every step."""
    due = []
    at = 0
    for arrival in history:
        at += arrival.gap
        due.append((at, arrival))
    while due or engine.has_work:
        assert len(engine.plans) < MAX_STEPS, "starved"
        while due and due[0][0] <= engine.now:
            add(engine, due.pop(0)[1], len(engine.sequences))
        let_leave(engine, history)
        engine.scheduler.check_integrity()
        step(engine)
        engine.scheduler.check_integrity()


def let_leave(engine, history: list[Arrival]) -> None:
    for sequence, arrival in zip(engine.sequences, history, strict=False):
        if arrival.leaves_after is None or engine.now < sequence.arrived_at + arrival.leaves_after:
            continue
        if arrival.is_withdrawn:
            engine.scheduler.withdraw(sequence)
        else:
            engine.scheduler.end(sequence, FinishReason.CANCELLED, engine.now)


def check_ends(engine, history: list[Arrival]) -> None:
    """Each sequence ended once, with the tokens that it yields alone, and holds no page."""
    finished = [sequence.number for outcome in engine.outcomes for sequence in outcome.finished]
    assert len(finished) == len(set(finished))
    for sequence, arrival in zip(engine.sequences, history, strict=True):
        assert sequence.status is SequenceStatus.FINISHED
        expected = expected_output(engine, sequence.token_ids[: sequence.num_prompt_tokens], arrival)
        if arrival.leaves_after is None:
            assert sequence.output_token_ids == expected
            assert sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        else:
            assert sequence.output_token_ids == expected[: sequence.num_output_tokens]
    assert engine.scheduler.stats().pages.num_used == 0
