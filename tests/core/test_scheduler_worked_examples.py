"""The examples by which continuous and static batching are explained, in numbers."""

from __future__ import annotations

import pytest

from headway.core.scheduler import Batching, SchedulerConfig


def config(batching: Batching = Batching.CONTINUOUS, **options: int) -> SchedulerConfig:
    return SchedulerConfig(batching=batching, **{"max_num_seqs": 8, **options})


def run_four(fake_engine, batching: Batching):
    """Requests of 20, 50, 100 and 10 tokens together, and one of 8 that arrives at step 5."""
    engine = fake_engine(config(batching))
    four = [engine.add(4, max_tokens=length, ignore_eos=True) for length in (20, 50, 100, 10)]
    for _ in range(5):
        engine.step()
    late = engine.add(4, max_tokens=8, ignore_eos=True)
    engine.run()
    return engine, four, late


def test_a_static_batch_of_20_50_100_and_10_tokens_uses_45_percent_of_its_slots(fake_engine):
    engine = fake_engine(config(Batching.STATIC))
    for length in (20, 50, 100, 10):
        engine.add(4, max_tokens=length, ignore_eos=True)
    engine.run()
    stats = engine.scheduler.stats()
    assert stats.num_slots_total == 400
    assert stats.num_busy_slots_total / stats.num_slots_total == pytest.approx(0.45)


def test_a_request_of_8_tokens_at_step_5_ends_103_steps_later_in_a_static_batch(fake_engine):
    engine, four, late = run_four(fake_engine, Batching.STATIC)
    assert [engine.last_step(sequence) for sequence in four] == [20, 50, 100, 10]
    assert engine.last_step(late) - 5 == 103


def test_a_request_of_8_tokens_at_step_5_joins_at_the_next_step_in_a_continuous_batch(fake_engine):
    engine, four, late = run_four(fake_engine, Batching.CONTINUOUS)
    assert late in [chunk.sequence for chunk in engine.plans[5].chunks]
    assert engine.plans[5].number == 6
    assert engine.last_step(late) == 13
    assert [engine.last_step(sequence) for sequence in four] == [20, 50, 100, 10]


@pytest.mark.parametrize(("num_prompt_tokens", "chunks"), [(2045, [2045]), (2046, [2045, 1])])
def test_beside_3_decodes_a_budget_of_2048_takes_2045_prompt_tokens(fake_engine, num_prompt_tokens, chunks):
    engine = fake_engine(config(max_num_batched_tokens=2048, max_prefill_chunk=2048))
    decoding = [engine.add(4, max_tokens=100, ignore_eos=True) for _ in range(3)]
    engine.step()
    prompt = engine.add(num_prompt_tokens)
    plans = [engine.step() for _ in chunks]
    assert [chunk.num_tokens for plan in plans for chunk in plan.chunks if chunk.sequence is prompt] == chunks
    for plan in plans:
        assert [chunk.num_tokens for chunk in plan.chunks if chunk.sequence in decoding] == [1, 1, 1]


def test_with_4_slots_a_fifth_request_waits_for_the_first_to_end(fake_engine):
    engine = fake_engine(config(max_num_seqs=4))
    first = [engine.add(4, max_tokens=length, ignore_eos=True) for length in (20, 50, 100, 10)]
    fifth = engine.add(4, max_tokens=8, ignore_eos=True)
    engine.step()
    assert engine.scheduler.running == tuple(first)
    assert engine.scheduler.waiting == (fifth,)
    engine.run()
    assert engine.last_step(first[3]) == 10
    assert engine.last_step(fifth) == 18


def test_a_prompt_of_100_000_tokens_delays_no_decode_by_more_than_one_step(fake_engine):
    engine = fake_engine(
        config(max_num_batched_tokens=2048, max_prefill_chunk=2048), num_pages=10_000, checks_memory=False
    )
    decoding = [engine.add(4, max_tokens=200, ignore_eos=True) for _ in range(3)]
    engine.step()
    long = engine.add(100_000, max_tokens=1)
    plans = []
    while long.finish_reason is None:
        plans.append(engine.step())
    assert len(plans) == 49  # 48 chunks of 2045 tokens, and the rest
    assert all([chunk.sequence for chunk in plan.chunks[:3]] == decoding for plan in plans)
