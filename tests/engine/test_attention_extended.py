"""The op's second overload: pages of eight bits, and rotary positions on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from headway.engine.attention import EXTENDED_OP, OP, paged_attention
from headway.engine.page_scales import EIGHT_BITS, from_eight_bits, to_eight_bits
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.triton_kernels.kernels import use_triton_kernels
from tests.engine.test_attention import LAYERS, LENGTHS, Batch, Layer, dense_attention, make_batch, native_kernels

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Implementation:
    """One way to compute the op, on one device."""

    attend: Callable[..., Tensor]
    device: str


@pytest.fixture(params=["reference", *DEVICES])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    if request.param == "reference":
        return Implementation(paged_attention_reference, "cpu")
    if request.param == "cuda":
        use_triton_kernels(torch.device("cuda"))
    else:
        native_kernels()  # which know nothing of this overload, and are asked for nothing
    return Implementation(paged_attention, request.param)


def eight_bit_batch(layer: Layer, lengths: list[tuple[int, int]], dtype: torch.dtype, device: str) -> Batch:
    """With what came before in eight bits already, each head in units of its own."""
    batch = make_batch(layer, lengths, dtype, device)
    key_scales = torch.tensor([2.0**-n for n in range(4, 4 + layer.num_kv_heads)], device=device)
    scales = {"key_scales": key_scales, "value_scales": key_scales / 2}
    key_pages = to_eight_bits(batch.arguments["key_pages"], scales["key_scales"])
    value_pages = to_eight_bits(batch.arguments["value_pages"], scales["value_scales"])
    arguments = {**batch.arguments, **scales, "key_pages": key_pages, "value_pages": value_pages}
    return Batch(arguments, key_pages, batch.expected)


def dense_over_pages(layer: Layer, arguments: dict[str, object]) -> Tensor:
    """Dense attention in float64 over what the pages stand for now."""
    outputs = []
    for row, length in enumerate(arguments["context_lens"].tolist()):
        start, end = arguments["query_start"][row : row + 2].tolist()
        table = arguments["page_table"][row, : -(-length // layer.page_size)].long()
        key, value = (
            from_eight_bits(arguments[f"{name}_pages"][table].flatten(0, 1)[:length], arguments[f"{name}_scales"])
            for name in ("key", "value")
        )
        query = arguments["query"][start:end].double()
        outputs.append(dense_attention(layer, query, key.double(), value.double(), arguments["sinks"]))
    return torch.cat(outputs)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("lengths", ["decodes", "a long chunk", "whole prompts", "mixed"])
@pytest.mark.parametrize("layer", ["grouped", "head size 80", "values of another width", "everything"])
def test_attention_over_eight_bits_is_exact_for_what_the_pages_hold(
    layer: str, lengths: str, dtype: torch.dtype, implementation: Implementation
) -> None:
    batch = eight_bit_batch(LAYERS[layer], LENGTHS[lengths], dtype, implementation.device)
    output = implementation.attend(**batch.arguments)
    assert output.dtype == dtype
    expected = dense_over_pages(LAYERS[layer], batch.arguments)
    torch.testing.assert_close(output.double(), expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("lengths", LENGTHS)
def test_and_within_some_per_cent_of_attention_over_what_was_rounded(
    lengths: str, implementation: Implementation
) -> None:
    batch = eight_bit_batch(LAYERS["grouped"], LENGTHS[lengths], torch.float32, implementation.device)
    difference = implementation.attend(**batch.arguments).double().cpu() - batch.expected
    assert 0 < difference.pow(2).mean().sqrt() <= 0.07 * batch.expected.pow(2).mean().sqrt()


def test_new_keys_and_values_are_rounded_into_their_slots_and_nowhere_else(implementation: Implementation) -> None:
    arguments = eight_bit_batch(LAYERS["grouped"], LENGTHS["mixed"], torch.float16, implementation.device).arguments
    arguments["key"][0] = 1e4
    slots = arguments["slot_mapping"]
    before = {name: arguments[f"{name}_pages"].view(torch.uint8).flatten(0, 1).clone() for name in ("key", "value")}
    implementation.attend(**arguments)
    for name, old in before.items():
        old[slots] = to_eight_bits(arguments[name], arguments[f"{name}_scales"]).view(torch.uint8)
        assert torch.equal(arguments[f"{name}_pages"].view(torch.uint8).flatten(0, 1), old)


def test_a_nan_is_not_rounded_to_a_number(implementation: Implementation) -> None:
    lengths = [(1, 40), (1, 70), (9, 30)]
    arguments = eight_bit_batch(LAYERS["grouped"], lengths, torch.float16, implementation.device).arguments
    arguments["key"][1] = torch.nan
    is_nan = implementation.attend(**arguments).isnan().flatten(1)
    assert is_nan[1].all()
    assert not is_nan[[0, *range(2, 11)]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_columns", [16, 64], ids=["some columns", "all columns"])
@pytest.mark.parametrize("lengths", ["decodes", "mixed"])
def test_turning_on_the_way_is_turning_before(
    lengths: str, num_columns: int, dtype: torch.dtype, implementation: Implementation
) -> None:
    layer = LAYERS["grouped"]
    before, on_the_way = (make_batch(layer, LENGTHS[lengths], dtype, implementation.device) for _ in range(2))
    angles = torch.randn(len(before.arguments["query"]), num_columns // 2, device=implementation.device).repeat(1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    for name in ("query", "key"):
        before.arguments[name] = turned(before.arguments[name], cos, sin)
    expected = implementation.attend(**before.arguments)
    output = implementation.attend(**on_the_way.arguments, cos=cos, sin=sin)
    torch.testing.assert_close(output, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
    torch.testing.assert_close(on_the_way.key_pages, before.key_pages, equal_nan=True)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The definition: columns i and i + R / 2 are the parts of a complex number."""
    half = cos.shape[1] // 2
    pairs = torch.complex(heads[..., :half].double(), heads[..., half : 2 * half].double())
    pairs = pairs * torch.complex(cos[:, None, :half].double(), sin[:, None, :half].double())
    return torch.cat((pairs.real, pairs.imag, heads[..., 2 * half :].double()), -1).to(heads.dtype)


def test_a_kernel_may_know_the_first_overload_alone() -> None:
    if native_kernels() is None:
        pytest.skip("there is no compiler")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    assert has_kernel(OP, "CPU")
    assert not has_kernel(EXTENDED_OP, "CPU")


def test_the_overload_is_sound_under_the_compiler(implementation: Implementation) -> None:
    layer, device = LAYERS["everything"], implementation.device
    plain = make_batch(layer, LENGTHS["mixed"], torch.float32, device).arguments
    cos = torch.ones(len(plain["query"]), 16, device=device)
    angles = {"cos": cos, "sin": torch.zeros_like(cos)}
    check_op({**plain, **angles, "key_scales": None, "value_scales": None}, "test_schema", "test_faketensor")
    in_eight_bits = eight_bit_batch(layer, LENGTHS["mixed"], torch.float32, device).arguments
    check_op({**in_eight_bits, **angles}, "test_faketensor")  # the other one multiplies, which eight bits cannot


def check_op(arguments: dict[str, object], *test_utils: str) -> None:
    op = torch.ops.headway.paged_attention.extended
    for name in ("key_pages", "value_pages"):  # opcheck compares, and NaN equals nothing
        pages = arguments[name]
        arguments[name] = pages if pages.dtype == EIGHT_BITS else pages.nan_to_num()
    torch.library.opcheck(op, [arguments[parameter.name] for parameter in op._schema.arguments], test_utils=test_utils)
