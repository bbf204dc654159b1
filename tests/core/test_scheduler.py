"""Who runs in a step, and with how many tokens."""

from __future__ import annotations

from headway.core.scheduler import PrefixSharing, SchedulerConfig


def make_engine(fake_engine, num_pages: int = 100, **options):
    return fake_engine(SchedulerConfig(**options), num_pages=num_pages, page_size=4)


def sizes(plan) -> list[int]:
    return [chunk.num_tokens for chunk in plan.chunks]


def test_an_idle_scheduler_plans_nothing(fake_engine):
    engine = make_engine(fake_engine)
    assert not engine.scheduler.has_work
    assert engine.step().chunks == ()
    assert engine.scheduler.stats().num_slots_total == 0


def test_decodes_come_before_prefill_chunks(fake_engine):
    engine = make_engine(fake_engine, max_num_batched_tokens=8, max_prefill_chunk=8, max_num_seqs=3)
    long = engine.add(20)
    engine.step()
    short = engine.add(1, ignore_eos=True)  # gets no token while the long prompt takes them all
    plan = engine.step()
    assert [chunk.sequence for chunk in plan.chunks] == [long]
    assert sizes(engine.step()) == [4, 1]
    another = engine.add(20)
    plan = engine.step()
    assert [chunk.sequence for chunk in plan.chunks] == [long, short, another]
    assert sizes(plan) == [1, 1, 6]


def test_short_prompts_get_their_first_token_beside_a_long_one(fake_engine):
    engine = make_engine(fake_engine, max_num_seqs=4, max_num_batched_tokens=32, max_prefill_chunk=16)
    engine.add(100)
    short = [engine.add(4), engine.add(8)]
    assert sizes(engine.step()) == [16, 4, 8]
    assert all(sequence.num_output_tokens == 1 for sequence in short)


def test_several_prompts_are_computed_in_part_in_one_step(fake_engine):
    engine = make_engine(fake_engine, max_num_seqs=4, max_num_batched_tokens=32, max_prefill_chunk=12)
    for _ in range(3):
        engine.add(40)
    assert sizes(engine.step()) == [12, 12, 8]


def test_a_sequence_is_sampled_only_in_the_step_that_computes_its_last_token(fake_engine):
    engine = make_engine(fake_engine, max_prefill_chunk=8)
    sequence = engine.add(20)
    outputs = []
    for _ in range(4):
        engine.step()
        outputs.append(sequence.num_output_tokens)
    assert outputs == [0, 0, 1, 2]
    assert sequence.first_scheduled_at == 0.0
    assert sequence.first_token_at == 3.0


def test_restored_output_is_computed_like_a_prompt_and_goes_on(fake_engine):
    engine = make_engine(fake_engine)
    prompt = [3, 1, 4, 1, 5]
    output = engine.output_alone(prompt, max_tokens=9, ignore_eos=True)
    sequence = engine.add(prompt, max_tokens=9, output=output[:4], ignore_eos=True)
    plan = engine.step()
    assert sizes(plan) == [9]
    engine.run()
    assert sequence.output_token_ids == output


def test_a_prompt_whose_prefix_is_cached_computes_only_the_rest(fake_engine):
    engine = make_engine(fake_engine)
    prefix = list(range(1, 13))
    engine.add([*prefix, 20, 21], max_tokens=1)
    engine.run()
    second = engine.add([*prefix, 30, 31], max_tokens=1)
    assert sizes(engine.step()) == [2]
    assert second.num_cached_tokens == 12


def test_cached_tokens_are_those_of_the_prompt_and_of_the_first_time_it_ran(fake_engine):
    engine = make_engine(fake_engine)
    prompt = list(range(1, 11))
    first = engine.add(prompt, max_tokens=12, ignore_eos=True)
    engine.run()
    resumed = engine.add(prompt, max_tokens=12, output=first.output_token_ids[:11], ignore_eos=True)
    assert sizes(engine.step()) == [1]
    assert resumed.num_cached_tokens == 10


def test_running_sequences_share_the_pages_of_a_prefix(fake_engine):
    engine = make_engine(fake_engine)
    prefix = list(range(1, 13))
    first = engine.add([*prefix, 20], ignore_eos=True)
    engine.step()
    second = engine.add([*prefix, 30], ignore_eos=True)
    engine.step()
    assert first.page_table[:3] == second.page_table[:3]
    assert first.page_table[3] != second.page_table[3]
    engine.run()


def test_pages_are_shared_only_when_they_are_computed(fake_engine):
    engine = make_engine(fake_engine, max_prefill_chunk=8, max_num_seqs=4)
    prompt = list(range(1, 20))
    engine.add(prompt)
    engine.step()
    second = engine.add(prompt)
    engine.step()
    assert second.num_cached_tokens == 8
    engine.run()


def test_a_fully_cached_prompt_still_computes_its_last_token(fake_engine):
    engine = make_engine(fake_engine)
    prompt = list(range(1, 13))
    first = engine.add(prompt, max_tokens=3, ignore_eos=True)
    engine.run()
    second = engine.add(prompt, max_tokens=3, ignore_eos=True)
    engine.run()
    assert second.num_cached_tokens == 8
    assert second.output_token_ids == first.output_token_ids


def num_cached_of_a_second_tenant(fake_engine, sharing: PrefixSharing) -> int:
    engine = make_engine(fake_engine, prefix_sharing=sharing)
    engine.add(list(range(1, 20)), tenant="acme")
    engine.run()
    second = engine.add(list(range(1, 20)), tenant="bolt")
    engine.run()
    return second.num_cached_tokens


def test_tenants_share_no_pages_unless_a_setting_says_so(fake_engine):
    assert num_cached_of_a_second_tenant(fake_engine, PrefixSharing.TENANT) == 0
    assert num_cached_of_a_second_tenant(fake_engine, PrefixSharing.ALL) == 16


def test_without_sharing_no_page_stays_cached(fake_engine):
    engine = make_engine(fake_engine, prefix_sharing=PrefixSharing.OFF)
    engine.add(20)
    engine.run()
    assert engine.pool.stats().num_free == 100


def test_stats_tell_the_pages_that_waiting_sequences_need(fake_engine):
    engine = make_engine(fake_engine, max_num_seqs=1)
    for _ in range(3):
        engine.add(7, ignore_eos=True)
    engine.step()
    stats = engine.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.waiting_pages) == (1, 2, 4)
    assert stats.admissible_pages == 100 - 2 - 5  # all but the running sequence's and the watermark


def test_slots_are_counted_busy_only_when_a_sequence_was_computed(fake_engine):
    engine = make_engine(fake_engine, max_num_seqs=4)
    engine.add(4, max_tokens=2, ignore_eos=True)
    engine.add(4, max_tokens=1)
    engine.run()
    stats = engine.scheduler.stats()
    assert (stats.num_busy_slots_total, stats.num_slots_total) == (3, 8)
