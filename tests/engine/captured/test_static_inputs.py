from __future__ import annotations

from dataclasses import fields

import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.captured.static_inputs import StaticInputs
from headway.engine.forward import DeviceInputs

NUM_ROWS, NUM_COLUMNS = 8, 6
SCRATCH_PAGE, PAGE_SIZE = 90, 4


def make_static() -> StaticInputs:
    return StaticInputs(NUM_ROWS, NUM_COLUMNS, SCRATCH_PAGE, PAGE_SIZE, torch.device("cpu"))


def make_decodes(num_rows: int, num_columns: int = 3) -> DeviceInputs:
    rows = torch.arange(num_rows)
    return DeviceInputs(
        token_ids=rows + 100,
        positions=rows + 5,
        slot_mapping=rows + 200,
        page_table=torch.arange(1, num_rows * num_columns + 1, dtype=torch.int32).view(num_rows, num_columns),
        query_start=torch.arange(num_rows + 1, dtype=torch.int32),
        context_lens=(rows + 6).int(),
        sampled_rows=rows,
    )


def assert_padding(inputs: DeviceInputs) -> None:
    """Every row is a sequence of one token in the scratch page."""
    assert set(inputs.token_ids.tolist()) <= {0}
    assert set(inputs.positions.tolist()) <= {0}
    assert set(inputs.context_lens.tolist()) <= {1}
    assert set(inputs.page_table[:, 0].tolist()) <= {SCRATCH_PAGE}
    assert set(inputs.slot_mapping.tolist()) <= {SCRATCH_PAGE * PAGE_SIZE}


def rows_of(inputs: DeviceInputs, rows: slice) -> DeviceInputs:
    per_row = {"token_ids", "positions", "slot_mapping", "page_table", "context_lens"}
    values = {entry.name: getattr(inputs, entry.name) for entry in fields(inputs)}
    return DeviceInputs(**{name: value[rows] if name in per_row else value for name, value in values.items()})


def test_all_rows_are_padding_at_first() -> None:
    inputs = make_static().view(NUM_ROWS)
    assert_padding(inputs)
    assert inputs.query_start.tolist() == list(range(9))
    assert inputs.sampled_rows.tolist() == list(range(8))


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6))
def test_rows_beyond_the_step_are_padding_whatever_was_there(sizes: list[int]) -> None:
    static = make_static()
    for num_rows in sizes:
        decodes = make_decodes(num_rows)
        static.fill(decodes)
        view = static.view(NUM_ROWS)
        assert_padding(rows_of(view, slice(num_rows, None)))
        assert view.token_ids[:num_rows].tolist() == decodes.token_ids.tolist()
        assert view.positions[:num_rows].tolist() == decodes.positions.tolist()
        assert view.slot_mapping[:num_rows].tolist() == decodes.slot_mapping.tolist()
        assert view.context_lens[:num_rows].tolist() == decodes.context_lens.tolist()
        assert view.page_table[:num_rows, :3].tolist() == decodes.page_table.tolist()


def test_what_a_step_reads_stays_where_it_is_and_has_the_types_of_a_step() -> None:
    static = make_static()
    before, decodes = static.view(4), make_decodes(3)
    static.fill(decodes)
    after = static.view(4)
    for entry in fields(decodes):
        seen, now, given_type = (getattr(inputs, entry.name) for inputs in (before, after, decodes))
        assert seen.data_ptr() == now.data_ptr()
        assert seen.dtype == given_type.dtype
        assert seen.is_contiguous()
    assert before.page_table.shape == (4, 6)
    assert before.token_ids.tolist() == [100, 101, 102, 0]
