"""Full pages: who waits, who gives way, and how often."""

from __future__ import annotations

from headway.core.scheduler import PrefixSharing, SchedulerConfig


def make_engine(fake_engine, num_pages: int, low: float = 0.0, high: float = 0.0, **options):
    config = SchedulerConfig(page_watermark_low=low, page_watermark_high=high, **options)
    return fake_engine(config, num_pages=num_pages, page_size=4)


def run_two_that_do_not_fit_together(fake_engine, **options):
    """Two sequences that grow to 6 pages each, in 10 pages."""
    engine = make_engine(fake_engine, num_pages=10, **options)
    older, newer = (engine.add(4, max_tokens=20, ignore_eos=True) for _ in range(2))
    while not (preempted := engine.step().preempted):
        engine.scheduler.check_integrity()
    return engine, older, newer, preempted


def test_the_newest_sequence_gives_way_when_pages_run_out(fake_engine):
    engine, older, newer, preempted = run_two_that_do_not_fit_together(fake_engine)
    assert preempted == (newer,)
    assert newer.num_preemptions == 1
    assert newer.page_table == []
    assert newer.num_computed_tokens == 0
    assert engine.scheduler.running == (older,)
    engine.scheduler.check_integrity()


def test_a_preempted_sequence_resumes_before_those_that_were_waiting(fake_engine):
    engine = make_engine(fake_engine, num_pages=10, max_num_seqs=2)
    older, newer, later = (engine.add(4, max_tokens=20, ignore_eos=True) for _ in range(3))
    while not engine.step().preempted:
        pass
    assert engine.scheduler.waiting == (newer, later)
    engine.run()
    assert older.finished_at < newer.finished_at < later.finished_at
    assert newer.first_scheduled_at == 0.0


def test_a_preempted_sequence_goes_on_with_the_same_tokens(fake_engine):
    engine, _, newer, _ = run_two_that_do_not_fit_together(fake_engine)
    engine.run()
    prompt = newer.token_ids[:4]
    assert newer.output_token_ids == engine.output_alone(prompt, max_tokens=20, ignore_eos=True)


def test_recomputed_tokens_are_counted(fake_engine):
    engine, _, newer, _ = run_two_that_do_not_fit_together(fake_engine, prefix_sharing=PrefixSharing.OFF)
    num_discarded = newer.num_discarded_tokens
    assert num_discarded == newer.num_tokens - 1
    engine.run()
    stats = engine.scheduler.stats()
    assert stats.num_preemptions_total == 1
    assert stats.num_recomputed_tokens_total == num_discarded


def test_pages_that_stayed_cached_need_no_recomputation(fake_engine):
    engine, older, newer, _ = run_two_that_do_not_fit_together(fake_engine)
    num_discarded = newer.num_discarded_tokens
    engine.scheduler.withdraw(older)
    engine.run()
    assert 0 < engine.scheduler.stats().num_recomputed_tokens_total < num_discarded


def test_a_sequence_that_was_preempted_too_often_is_spared_while_another_can_be(fake_engine):
    engine = make_engine(fake_engine, num_pages=10, max_preemptions=1)
    older, newer = (engine.add(4, max_tokens=20, ignore_eos=True) for _ in range(2))
    newer.num_preemptions = 1
    while not (preempted := engine.step().preempted):
        pass
    assert preempted == (older,)
    engine.run()
    assert older.num_preemptions == 1


def test_the_newest_gives_way_when_all_were_preempted_too_often(fake_engine):
    engine, _, newer, preempted = run_two_that_do_not_fit_together(fake_engine, max_preemptions=0)
    assert preempted == (newer,)
    engine.run()


def test_a_crowd_gets_through_a_pool_that_holds_one_or_two(fake_engine):
    engine = make_engine(fake_engine, num_pages=12, max_preemptions=2, max_num_seqs=8)
    sequences = [engine.add(5, max_tokens=40, ignore_eos=True) for _ in range(8)]
    engine.run(max_steps=8 * 60)
    assert engine.scheduler.stats().num_preemptions_total > 0
    for sequence in sequences:
        assert sequence.output_token_ids == engine.output_alone(sequence.token_ids[:5], 40, ignore_eos=True)


def test_admission_leaves_the_watermark_to_those_that_run(fake_engine):
    engine = make_engine(fake_engine, num_pages=20, low=0.2, high=0.2)
    for _ in range(9):
        engine.add(4, ignore_eos=True)  # 2 pages each
    engine.step()
    assert len(engine.scheduler.running) == 8
    assert engine.pool.num_available == 4


def test_admission_once_held_waits_for_the_high_watermark(fake_engine):
    engine = make_engine(fake_engine, num_pages=20, low=0.2, high=0.5, prefix_sharing=PrefixSharing.OFF)
    grows = engine.add(40, max_tokens=28, ignore_eos=True)  # 11 pages, growing to 17
    ends = engine.add(12, max_tokens=23, ignore_eos=True)  # 4 pages, growing
    while engine.pool.num_available >= 4:
        engine.step()
    waiting = engine.add(1)
    engine.scheduler.withdraw(ends)
    assert 4 < engine.pool.num_available < 10
    engine.step()
    assert engine.scheduler.waiting == (waiting,)
    assert engine.scheduler.stats().admissible_pages == 0
    engine.scheduler.withdraw(grows)
    engine.step()
    assert waiting.first_scheduled_at is not None


def test_an_empty_batch_takes_what_fits_the_pool_whatever_the_watermarks_say(fake_engine):
    engine = make_engine(fake_engine, num_pages=10, low=0.5, high=0.9)
    sequence = engine.add(36, max_tokens=4, ignore_eos=True)
    engine.run()
    assert sequence.num_output_tokens == 4


def test_nobody_passes_by_a_sequence_that_waits_for_pages(fake_engine):
    engine = make_engine(fake_engine, num_pages=10)
    engine.add(20, max_tokens=4, ignore_eos=True)
    large, small = engine.add(30, max_tokens=2), engine.add(1)
    engine.step()
    assert engine.scheduler.waiting == (large, small)
    engine.run()
    assert large.first_scheduled_at <= small.first_scheduled_at
