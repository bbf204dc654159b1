"""The op ``headway::linear_int8`` against float64 of the same quantised numbers, in plain torch and on every
instruction set that this CPU can run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from headway.engine.int8_linear import (
    GROUP,
    Int8Linear,
    linear_int8_reference,
    pack_quantized,
    quantize,
    quantize_groups,
    unpack_quantized,
)

TYPES = [torch.bfloat16, torch.float32]
ROWS = [*range(1, 31), 48, 64, 70, 512]
SHAPES = [(64, 64), (33, 7), (1, 130), (100, 1), (63, 65), (4, 32), (130, 40), (192, 33)]
"""Inputs and outputs."""


@pytest.fixture(params=TYPES, ids=["bfloat16", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def make_layer(num_in: int, num_out: int, dtype: torch.dtype, has_bias: bool = False) -> Int8Linear:
    return Int8Linear(torch.randn(num_out, num_in).to(dtype), torch.randn(num_out).to(dtype) if has_bias else None)


def exact(layer: Int8Linear, rows: Tensor, of_magnitudes: bool = False) -> Tensor:
    """In float64, of the numbers that the layer multiplies; of their magnitudes: what rounding errors are in
    proportion to."""
    weight = unpack_quantized(layer.packed_weight, layer.out_features, layer.in_features).double()
    weight *= layer.scales[:, None].double()
    inputs = quantize_groups(rows).values.flatten(-2)[..., : layer.in_features]
    bias = None if layer.bias is None else layer.bias.double()
    if of_magnitudes:
        return linear(inputs.abs(), weight.abs(), None if bias is None else bias.abs())
    return linear(inputs, weight, bias)


def check(layer: Int8Linear, rows: Tensor) -> None:
    """Within one rounding to the output's type and float32's own error."""
    output, reference = layer(rows), exact(layer, rows)
    error = (output.double() - reference).abs()
    assert (output.dtype, output.shape) == (rows.dtype, reference.shape)
    rounding = 2**-8 if rows.dtype == torch.bfloat16 else 2**-23
    allowed = rounding * reference.abs() + 2**-21 * exact(layer, rows, of_magnitudes=True)
    assert (error <= allowed).all(), error.max()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_computes_the_product_of_the_quantised_numbers(
    num_in: int, num_out: int, has_bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(num_in)
    layer = make_layer(num_in, num_out, dtype, has_bias)
    for num_rows in ROWS:
        check(layer, torch.randn(num_rows, num_in).to(dtype))


@pytest.mark.parametrize(("num_in", "num_out"), [(64, 64), (576, 960), (130, 40)])
def test_it_is_close_to_the_layer_that_it_replaces(num_in: int, num_out: int) -> None:
    rows, weight = torch.randn(20, num_in), torch.randn(num_out, num_in)
    true = linear(rows, weight)
    assert (Int8Linear(weight, None)(rows) - true).norm() <= 0.015 * true.norm()


@pytest.mark.usefixtures("level", "several_threads")
@pytest.mark.parametrize(("num_in", "num_out", "num_rows"), [(576, 3000, 1), (576, 3000, 70), (1536, 20, 600)])
def test_large_layers_are_divided_among_threads(num_in: int, num_out: int, num_rows: int, dtype: torch.dtype) -> None:
    check(make_layer(num_in, num_out, dtype), torch.randn(num_rows, num_in).to(dtype))


@pytest.mark.usefixtures("level", "several_threads")
@pytest.mark.parametrize(("num_in", "num_out"), [(101, 50), (1536, 576)])
def test_results_do_not_depend_on_the_other_rows(num_in: int, num_out: int, dtype: torch.dtype) -> None:
    """So that a sequence's tokens are the same in every batch, whatever outliers the others have."""
    layer = make_layer(num_in, num_out, dtype)
    rows = (torch.randn(70, num_in) * 10 ** torch.linspace(-3, 3, 70)[:, None]).to(dtype)
    together = layer(rows)
    for row in range(70):
        assert torch.equal(layer(rows[row : row + 1])[0], together[row])


@pytest.mark.usefixtures("level")
def test_all_instruction_sets_quantise_alike(dtype: torch.dtype) -> None:
    """An identity times 127, whose steps are 1, shows what the rows became; halves between two steps go to the even."""
    layer = Int8Linear(torch.eye(GROUP) * 127, None)
    steps = torch.randint(-254, 255, (50, GROUP)) / 2
    steps[:, 0] = 127
    rows = torch.cat([steps, torch.randn(50, GROUP) * 40]).to(dtype)
    quantised = quantize(rows)
    torch.testing.assert_close(layer(rows), (quantised.values * 127).to(dtype), rtol=0, atol=0)


@pytest.mark.usefixtures("level")
def test_zeros_give_zeros_and_the_bias(dtype: torch.dtype) -> None:
    plain, biased = make_layer(100, 40, dtype), make_layer(100, 40, dtype, has_bias=True)
    zeros = torch.zeros(3, 100, dtype=dtype)
    assert torch.equal(plain(zeros), torch.zeros(3, 40, dtype=dtype))
    assert torch.equal(biased(zeros), biased.bias.expand(3, 40))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("number", [1.0, -3.5, 1e-38, 1e-30, 1e30, 1e36])
def test_rows_of_one_number_are_exact_however_large_it_is(number: float, dtype: torch.dtype) -> None:
    rows = torch.full((2, 70), number).to(dtype)
    layer = Int8Linear(torch.eye(70), None)
    tolerance = 2**-7 if abs(number) > 1e-37 else 0.5  # beneath, steps are as short as they can be
    torch.testing.assert_close(layer(rows), rows, rtol=tolerance, atol=0)


@pytest.mark.usefixtures("level")
def test_an_outlier_spoils_its_own_group_only(dtype: torch.dtype) -> None:
    rows = torch.randn(5, 3 * GROUP).to(dtype)
    rows[:, 7] = 1e6
    layer = Int8Linear(torch.eye(3 * GROUP), None)
    check(layer, rows)
    torch.testing.assert_close(layer(rows)[:, GROUP:], rows[:, GROUP:], rtol=2**-8, atol=0.02)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("column", [5, 69])
def test_what_is_no_number_makes_its_row_nan_and_no_other(special: float, column: int, dtype: torch.dtype) -> None:
    rows, layer = torch.randn(3, 70).to(dtype), make_layer(70, 40, dtype)
    rows[1, column] = special
    assert layer(rows)[1].isnan().all()
    check(layer, rows[::2])


@pytest.mark.usefixtures("level")
def test_a_weight_that_is_no_number_makes_its_column_nan() -> None:
    weight = torch.randn(40, 70)
    weight[3, 5], weight[7, 8] = torch.nan, torch.inf
    bad = Int8Linear(weight, None)(torch.randn(2, 70)).isnan()
    assert bad.all(0).nonzero().flatten().tolist() == bad.any(0).nonzero().flatten().tolist() == [3, 7]


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_in", [32, 33])
def test_what_lies_beside_the_rows_is_not_read(num_in: int, dtype: torch.dtype) -> None:
    around = torch.full((1, 20, num_in + 3), torch.nan, dtype=dtype)
    rows = around[..., 1 : num_in + 1]
    rows.copy_(torch.randn(1, 20, num_in))
    check(make_layer(num_in, 40, dtype), rows)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16), (0, 16), (1, 0, 16)])
def test_it_takes_any_number_of_dimensions(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(make_layer(16, 8, dtype), torch.randn(shape).to(dtype))


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("view", ["columns", "transposed", "reversed rows", "repeated"])
def test_it_takes_rows_however_they_lie(view: str, dtype: torch.dtype) -> None:
    rows = {
        "columns": torch.randn(2, 5, 40)[..., 3:19],
        "transposed": torch.randn(16, 5).t(),
        "reversed rows": torch.randn(5, 2, 16).transpose(0, 1),
        "repeated": torch.randn(1, 16).expand(5, 16),
    }[view]
    check(make_layer(16, 8, dtype), rows.to(dtype))


@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
def test_unpacking_gives_back_what_was_packed(num_in: int, num_out: int) -> None:
    weight = torch.randint(-127, 128, (num_out, num_in), dtype=torch.int8)
    packed = pack_quantized(weight)
    assert torch.equal(unpack_quantized(packed, num_out, num_in), weight)
    assert packed.dtype == torch.uint8
    assert packed.nbytes <= (num_in + 3) * (num_out + 31)


@pytest.mark.parametrize("num_rows", [1, 1024, 1500])
def test_a_weight_is_quantised_by_its_rows_however_many_there_are(num_rows: int) -> None:
    weight = torch.randn(num_rows, 20)
    layer, whole = Int8Linear(weight, None), quantize(weight)
    assert torch.equal(unpack_quantized(layer.packed_weight, num_rows, 20), whole.numbers)
    assert torch.equal(layer.scales, whole.steps.flatten())


@pytest.mark.usefixtures("kernels")
def test_in_plain_torch_it_computes_the_same(dtype: torch.dtype) -> None:
    layer, rows = make_layer(100, 40, dtype, has_bias=True), torch.randn(2, 3, 100).to(dtype)
    plain = linear_int8_reference(rows, layer.packed_weight, layer.scales, 40, layer.bias)
    torch.testing.assert_close(plain, layer(rows), rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_op_is_what_torch_expects_of_one(has_bias: bool, dtype: torch.dtype) -> None:
    layer = make_layer(16, 40, dtype, has_bias)
    arguments = (torch.randn(3, 16).to(dtype), layer.packed_weight, layer.scales, 40, layer.bias)
    torch.library.opcheck(torch.ops.headway.linear_int8.default, arguments)


def call_badly(
    rows: Tensor | None = None,
    packed: Tensor | None = None,
    scales: Tensor | None = None,
    num_out: int = 8,
    bias: Tensor | None = None,
) -> Tensor:
    """Right but for what is given."""
    layer = make_layer(16, 8, torch.float32)
    rows = torch.randn(3, 16) if rows is None else rows
    packed = layer.packed_weight if packed is None else packed
    scales = layer.scales if scales is None else scales
    output: Tensor = torch.ops.headway.linear_int8(rows, packed, scales, num_out, bias)
    return output


BAD_CALLS = {
    "takes bfloat16 or float32": lambda: call_badly(rows=torch.randn(3, 16).half()),
    "takes weights in bytes": lambda: call_badly(packed=torch.zeros(1, 4, 32, 4)),
    "is not packed": lambda: call_badly(packed=torch.zeros(8, 16, dtype=torch.uint8)),
    "not packed for this kernel": lambda: call_badly(packed=torch.zeros(1, 8, 32, 2, dtype=torch.uint8)),
    "do not fit": lambda: call_badly(rows=torch.randn(3, 20)),
    "blocks of columns": lambda: call_badly(num_out=33),
    "scales must be": lambda: call_badly(scales=torch.ones(9)),
    "bias must be": lambda: call_badly(bias=torch.ones(8).bfloat16()),
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("message", BAD_CALLS)
def test_a_call_that_cannot_be_answered_says_why(message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        BAD_CALLS[message]()
