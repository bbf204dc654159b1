from __future__ import annotations

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.step_inputs import build_step_inputs


def make_chunk(token_ids: list[int], page_table: list[int], start: int, num_tokens: int) -> ScheduledChunk:
    sequence = Sequence(
        number=token_ids[0],
        key=JobKey("acme", "a"),
        sampling=SamplingParams(),
        token_ids=token_ids,
        num_prompt_tokens=len(token_ids),
        arrived_at=0.0,
        page_table=page_table,
    )
    return ScheduledChunk(sequence, start, num_tokens, is_sampled=start + num_tokens == len(token_ids))


def test_a_mixed_step_lies_end_to_end_in_one_row() -> None:
    decode = make_chunk([10, 11, 12, 13, 14], [7, 3], start=4, num_tokens=1)
    partial = make_chunk(list(range(20, 32)), [1, 9, 0], start=2, num_tokens=5)
    whole = make_chunk([40, 41], [5, 6], start=0, num_tokens=2)
    inputs = build_step_inputs(StepPlan(1, (decode, partial, whole)), page_size=4)
    assert inputs.token_ids.tolist() == [14, 22, 23, 24, 25, 26, 40, 41]
    assert inputs.positions.tolist() == [4, 2, 3, 4, 5, 6, 0, 1]
    assert inputs.slot_mapping.tolist() == [12, 6, 7, 36, 37, 38, 20, 21]
    assert inputs.query_start.tolist() == [0, 1, 6, 8]
    assert inputs.context_lens.tolist() == [5, 7, 2]


def test_the_page_table_holds_the_pages_that_the_step_needs_and_no_more() -> None:
    decode = make_chunk([10, 11, 12, 13, 14], [7, 3, 8], start=4, num_tokens=1)
    short = make_chunk([40, 41], [5, 6], start=0, num_tokens=2)
    inputs = build_step_inputs(StepPlan(1, (decode, short)), page_size=4)
    assert inputs.page_table.tolist() == [[7, 3], [5, 0]]


def test_only_the_last_row_of_a_chunk_that_reaches_the_end_is_sampled() -> None:
    partial = make_chunk(list(range(20, 32)), [1, 9, 0], start=0, num_tokens=11)
    final = make_chunk(list(range(20, 32)), [1, 9, 0], start=9, num_tokens=3)
    assert build_step_inputs(StepPlan(1, (partial,)), page_size=4).sampled_rows.tolist() == []
    assert build_step_inputs(StepPlan(1, (partial, final)), page_size=4).sampled_rows.tolist() == [13]
