"""Both attention kernels against dense attention in float64. Unused pages hold NaN, and so does the output before."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.triton_kernels import attend
from headway.engine.triton_kernels.attend import attention_launches
from headway.engine.triton_kernels.launch import Chip
from tests.engine.test_attention import Layer, make_batch
from tests.engine.triton_kernels.interpreted import CHIP, assert_close, attended, batch_of, poisoned_output

LAYERS = {
    "64": Layer(num_heads=3, num_kv_heads=1, head_dim=64, value_dim=64, page_size=16),
    "80": Layer(num_heads=2, num_kv_heads=2, head_dim=80, value_dim=80, page_size=16),
    "96, large pages": Layer(num_heads=4, num_kv_heads=2, head_dim=96, value_dim=96, page_size=128),
    "128, seven heads in a group": Layer(num_heads=7, num_kv_heads=1, head_dim=128, value_dim=128, page_size=32),
    "256": Layer(num_heads=8, num_kv_heads=1, head_dim=256, value_dim=256, page_size=64),
    "values of another width": Layer(head_dim=48, value_dim=80, page_size=16),
    "an odd head size": Layer(head_dim=17, value_dim=33),
    "window": Layer(sliding_window=70, page_size=16),
    "window of one": Layer(sliding_window=1, page_size=16),
    "softcap": Layer(softcap=2.0, scale=1.0),
    "sinks": Layer(has_sinks=True, num_heads=6),
    "everything": Layer(num_heads=10, sliding_window=50, softcap=3.0, scale=0.5, has_sinks=True, value_dim=24),
}
MIXED = [(1, 40), (9, 130), (2, 2), (1, 1), (40, 40)]
DECODES = [(1, 1), (1, 513), (1, 90), (1, 700)]
MANY_PROCESSORS = Chip(90, 40)
"""So many that contexts are split."""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_mixed_batch_is_attended_in_one_launch(layer: str, dtype: torch.dtype) -> None:
    example = make_batch(LAYERS[layer], MIXED, dtype, "cpu")
    assert len(attention_launches(batch_of(example), poisoned_output(batch_of(example)), CHIP)) == 1
    assert_close(attended(example), example.expected)


@pytest.mark.parametrize("layer", LAYERS)
def test_decodes_are_split_and_combined(layer: str) -> None:
    example = make_batch(LAYERS[layer], DECODES, torch.float16, "cpu")
    split, *combine = attention_launches(batch_of(example), poisoned_output(batch_of(example)), MANY_PROCESSORS)
    assert bool(combine) == (split.grid[2] > 1) == (LAYERS[layer].sliding_window == 0)
    assert_close(attended(example, MANY_PROCESSORS), example.expected)


@pytest.mark.parametrize("lengths", [DECODES, MIXED], ids=["decodes", "mixed"])
def test_float32_is_not_rounded_on_the_way(lengths: list[tuple[int, int]]) -> None:
    example = make_batch(LAYERS["80"], lengths, torch.float32, "cpu")
    assert_close(attended(example, MANY_PROCESSORS), example.expected)


def test_decodes_of_long_contexts_beside_chunks_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attend, "MAX_KEYS", 600)
    example = make_batch(LAYERS["64"], [*DECODES, (3, 5)], torch.float16, "cpu")
    launches = attention_launches(batch_of(example), poisoned_output(batch_of(example)), MANY_PROCESSORS)
    assert len(launches) == 3
    assert_close(attended(example, MANY_PROCESSORS), example.expected)


def test_a_sink_counts_once_in_however_many_pieces_a_context_is_cut() -> None:
    outputs = []
    for chip, is_split in ((Chip(90, 1), False), (MANY_PROCESSORS, True)):
        example = make_batch(LAYERS["sinks"], DECODES, torch.float16, "cpu")
        # As heavy as all keys of the longest context, and values of one: what is left is the keys' share.
        example.arguments["sinks"].fill_(math.log(700))
        for name in ("value", "value_pages"):
            example.arguments[name].fill_(1.0)
        launches = attention_launches(batch_of(example), poisoned_output(batch_of(example)), chip)
        assert (len(launches) == 2) == is_split
        outputs.append(attended(example, chip))
    whole, split = outputs
    assert 0.3 < whole[-1].mean() < 0.7
    assert_close(split, whole.double())


def test_a_row_may_see_none_of_the_keys_that_its_tile_reads_first() -> None:
    layer = Layer(num_heads=1, num_kv_heads=1, sliding_window=3)
    example = make_batch(layer, [(120, 125)], torch.float16, "cpu")
    (mixed,) = attention_launches(batch_of(example), poisoned_output(batch_of(example)), CHIP)
    assert mixed.constants["BLOCK_KEYS"] + layer.sliding_window < mixed.constants["BLOCK_ROWS"]
    assert_close(attended(example), example.expected)


def test_a_group_of_more_heads_than_a_tile_has_rows_is_served() -> None:
    layer = Layer(num_heads=71, num_kv_heads=1, head_dim=16, value_dim=16)
    for lengths in ([(1, 20), (1, 3)], [(3, 20), (1, 3)]):
        example = make_batch(layer, lengths, torch.float16, "cpu")
        assert_close(attended(example), example.expected)


def test_a_sequence_with_nan_keys_and_values_leaves_its_neighbours_alone() -> None:
    example = make_batch(LAYERS["64"], [(1, 30), (5, 30), (1, 30)], torch.float16, "cpu")
    arguments = example.arguments
    start, end = arguments["query_start"][1:3].tolist()
    arguments["key"][start:end] = arguments["value"][start:end] = torch.nan
    output = attended(example)
    assert output[start:end].isnan().all()
    assert_close(torch.cat((output[:start], output[end:])), torch.cat((example.expected[:1], example.expected[-1:])))


def test_rows_that_only_fill_up_a_batch_may_share_a_page_and_have_no_length() -> None:
    example = make_batch(LAYERS["64"], [(1, 30), (1, 1), (1, 1)], torch.float16, "cpu")
    arguments = example.arguments
    arguments["page_table"][2] = arguments["page_table"][1]
    arguments["slot_mapping"][2] = arguments["slot_mapping"][1]
    arguments["context_lens"][2] = 0
    output = attended(example)
    assert_close(output[:1], example.expected[:1])
    assert (output[2] == 0).all()


def test_queries_may_lie_head_by_head_as_models_make_them() -> None:
    example = make_batch(LAYERS["64"], MIXED, torch.float16, "cpu")
    for name in ("query", "key", "value"):
        by_head = example.arguments[name].transpose(0, 1).contiguous()
        example.arguments[name] = by_head.transpose(0, 1)
    assert_close(attended(example), example.expected)


def test_a_result_is_the_same_every_time() -> None:
    outputs = []
    for _ in range(2):
        example = make_batch(LAYERS["64"], DECODES, torch.float16, "cpu")
        outputs.append(attended(example, MANY_PROCESSORS))
    assert torch.equal(*outputs)


LENGTHS = st.tuples(st.integers(1, 40), st.integers(0, 150)).map(lambda pair: (pair[0], sum(pair)))
DIMS = st.sampled_from([16, 24, 40, 64, 80, 96, 128, 160, 256])


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    num_kv_heads = draw(st.integers(1, 2))
    return Layer(
        num_heads=num_kv_heads * draw(st.integers(1, 8)),
        num_kv_heads=num_kv_heads,
        head_dim=draw(DIMS),
        value_dim=draw(DIMS),
        page_size=draw(st.sampled_from([16, 32, 64, 128])),
        scale=0.1,
        sliding_window=draw(st.sampled_from([0, 0, 1, 33, 100])),
        softcap=draw(st.sampled_from([0.0, 0.0, 4.0])),
        has_sinks=draw(st.booleans()),
    )


@settings(max_examples=15, derandomize=True)
@given(
    layer=layers(),
    lengths=st.one_of(
        st.lists(LENGTHS, min_size=1, max_size=4),
        st.lists(st.tuples(st.just(1), st.integers(1, 600)), min_size=1, max_size=3),
    ),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    chip=st.builds(Chip, st.sampled_from([80, 90, 100]), st.integers(1, 30)),
)
def test_any_layer_and_batch(layer: Layer, lengths: list[tuple[int, int]], dtype: torch.dtype, chip: Chip) -> None:
    example = make_batch(layer, lengths, dtype, "cpu")
    assert_close(attended(example, chip), example.expected)
