"""What holds for every history of arrivals, lengths, cancels, withdrawals and preemptions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.scheduler import Batching
from tests.core.histories import (
    arrivals,
    check_ends,
    configs,
    crowding_configs,
    growing_arrivals,
    num_pages,
    play,
)


def step(engine) -> None:
    decoding = {sequence.number for sequence in engine.scheduler.running if sequence.num_uncomputed_tokens == 1}
    plan = engine.step()
    planned = [chunk.sequence.number for chunk in plan.chunks]
    assert decoding <= {*planned, *(sequence.number for sequence in plan.preempted)}, "a decode was delayed"
    assert len(planned) == len(set(planned)) <= engine.config.max_num_seqs
    assert plan.num_tokens <= engine.config.max_num_batched_tokens
    assert all(0 < chunk.num_tokens <= engine.config.max_prefill_chunk for chunk in plan.chunks)


@settings(deadline=None, max_examples=150)
@given(config=configs, history=st.lists(arrivals, min_size=1, max_size=12), num_pages=num_pages)
def test_every_job_ends_once_with_the_tokens_it_yields_alone(fake_engine, config, history, num_pages):
    engine = fake_engine(config, num_pages=num_pages, page_size=4)
    play(engine, history, step)
    check_ends(engine, history)
    started = [sequence.first_scheduled_at for sequence in engine.sequences if sequence.first_scheduled_at is not None]
    assert started == sorted(started), "a sequence passed another by"
    if config.batching is Batching.STATIC:
        assert engine.scheduler.stats().num_preemptions_total == 0


@settings(deadline=None, max_examples=100)
@given(config=crowding_configs, history=st.lists(growing_arrivals, min_size=4, max_size=12), num_pages=num_pages)
def test_preemptions_change_no_token_and_spare_the_oldest(fake_engine, config, history, num_pages):
    engine = fake_engine(config, num_pages=num_pages, page_size=4)
    play(engine, history, step)
    check_ends(engine, history)
    assert engine.sequences[0].num_preemptions <= config.max_preemptions
