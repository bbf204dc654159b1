"""Batches for attention on a device, and what is timed of it."""

from __future__ import annotations

import math

import pytest
import torch

from headway.engine.paged_reference import paged_attention_reference
from loadtest.gpu.bandwidth import DecodeShape, DecodeTiming
from loadtest.gpu.cases import AttentionCase, attention_cases, attention_error, draw_arguments
from loadtest.gpu.pages import rotate

CPU = torch.device("cpu")
LENGTHS = ((1, 20), (5, 9), (1, 1), (30, 64))
SMALL = {"num_heads": 6, "num_kv_heads": 2, "key_dim": 24, "value_dim": 16, "dtype": torch.float32}


def case(**options: object) -> AttentionCase:
    return AttentionCase("a case", LENGTHS, **{**SMALL, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sliding_window": 7},
        {"softcap": 3.0},
        {"has_sinks": True},
        {"page_size": 64},
        {"first_page": 50},
        {"has_eight_bits": True},
        {"rotary_dim": 16},
    ],
    ids=str,
)
def test_a_right_implementation_has_no_error_to_speak_of(options):
    tested = case(**options)
    assert attention_error(tested, paged_attention_reference, CPU) <= tested.tolerance


def test_wrong_ones_are_noticed():
    def one_key_less(**arguments):
        return paged_attention_reference(**{**arguments, "sliding_window": 19})

    def no_number(**arguments):
        output = paged_attention_reference(**arguments)
        output[0, 0, 0] = math.nan
        return output

    assert attention_error(case(), one_key_less, CPU) > case().tolerance
    assert attention_error(case(), no_number, CPU) == math.inf


def test_whatever_no_query_may_see_is_no_number():
    arguments = draw_arguments(case(first_page=3), CPU)
    pages = arguments["key_pages"].flatten(0, 1)[3 * 16 :]
    num_past = sum(total - num_new for num_new, total in LENGTHS)
    assert (~pages.isnan().any(-1).any(-1)).sum() == num_past


def test_pages_of_sequences_are_their_own():
    table, total = draw_arguments(case(), CPU)["page_table"], sum(-(-total // 16) for _, total in LENGTHS)
    used = [page for row, (_, length) in zip(table, LENGTHS, strict=True) for page in row[: -(-length // 16)].tolist()]
    assert len(set(used)) == total


def test_cases_have_names_of_their_own_and_go_beyond_32_bits():
    cases = attention_cases()
    assert len({each.name for each in cases}) == len(cases)
    elements = max(each.first_page * each.page_size * each.num_kv_heads * each.key_dim for each in cases)
    assert elements > 2**31


def test_a_share_is_of_what_a_copy_moves():
    shape = DecodeShape()
    assert shape.kv_bytes == 64 * 4096 * 8 * 128 * 2 * 2
    timing = DecodeTiming(seconds=shape.kv_bytes / 4e12, kv_bytes=shape.kv_bytes, copy_bytes_per_s=5e12)
    assert timing.share == pytest.approx(0.8)


def test_a_rotation_keeps_lengths_and_what_is_not_rotated():
    x, angles = torch.randn(3, 2, 16), torch.rand(3, 4).repeat(1, 2)
    turned = rotate(x, angles)
    torch.testing.assert_close(turned.norm(dim=-1), x.double().norm(dim=-1))
    assert torch.equal(turned[..., 8:], x[..., 8:].double())
