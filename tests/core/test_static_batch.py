from __future__ import annotations

from headway.core.job import FinishReason
from headway.core.scheduler import Batching, SchedulerConfig


def make_engine(fake_engine, num_pages: int = 100, **options: int):
    config = SchedulerConfig(batching=Batching.STATIC, **{"max_num_seqs": 4, **options})
    return fake_engine(config, num_pages=num_pages, page_size=4)


def test_a_row_that_ended_keeps_its_slot_and_pages_until_the_longest_ends(fake_engine):
    engine = make_engine(fake_engine)
    short, long = engine.add(4, max_tokens=1), engine.add(4, max_tokens=3, ignore_eos=True)
    waiting = engine.add(4)
    engine.step()
    engine.step()
    assert short.finish_reason is not None
    assert engine.pool.stats().num_used == len(short.page_table) + len(long.page_table) + len(waiting.page_table)
    engine.run()
    assert engine.pool.stats().num_used == 0


def test_nobody_joins_while_a_batch_lives_although_slots_are_free(fake_engine):
    engine = make_engine(fake_engine)
    first = engine.add(4, max_tokens=3, ignore_eos=True)
    engine.step()
    late = engine.add(4)
    for _ in range(2):
        assert engine.scheduler.waiting == (late,)
        engine.step()
    assert first.finish_reason is FinishReason.LENGTH
    engine.step()
    assert late.first_scheduled_at is not None


def test_a_row_that_ended_is_not_computed(fake_engine):
    engine = make_engine(fake_engine)
    engine.add(4, max_tokens=1)
    long = engine.add(4, max_tokens=3, ignore_eos=True)
    engine.step()
    assert [chunk.sequence for chunk in engine.step().chunks] == [long]


def test_all_rows_join_in_one_step_even_if_their_prompts_take_several(fake_engine):
    engine = make_engine(fake_engine, max_num_batched_tokens=8, max_prefill_chunk=8)
    rows = [engine.add(20) for _ in range(4)]
    engine.step()
    assert engine.scheduler.running == tuple(rows)
    engine.run()
    assert engine.scheduler.stats().num_preemptions_total == 0


def test_a_batch_is_as_large_as_the_longest_outputs_of_its_rows_allow(fake_engine):
    engine = make_engine(fake_engine, num_pages=10)
    rows = [engine.add(4, max_tokens=16) for _ in range(3)]
    engine.step()
    assert engine.scheduler.running == tuple(rows[:2])
    engine.run()
    assert engine.scheduler.stats().num_preemptions_total == 0


def test_a_cancelled_row_keeps_its_pages_until_the_batch_ends(fake_engine):
    engine = make_engine(fake_engine)
    cancelled, other = engine.add(4), engine.add(4, ignore_eos=True)
    engine.step()
    engine.scheduler.end(cancelled, FinishReason.CANCELLED, now=1.0)
    engine.scheduler.check_integrity()
    assert cancelled.page_table
    engine.scheduler.end(other, FinishReason.CANCELLED, now=1.0)
    engine.scheduler.check_integrity()
    assert engine.pool.stats().num_used == 0


def test_the_next_batch_can_count_on_the_whole_pool(fake_engine):
    engine = make_engine(fake_engine)
    engine.add(4)
    engine.step()
    assert engine.scheduler.stats().admissible_pages == 100
