"""The op ``headway::linear`` against float64, in plain torch and on every instruction set that this CPU can run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from headway.engine.native_linear import BLOCK, NativeLinear, linear_reference, pack_weight, unpack_weight

BFLOAT16 = torch.bfloat16
ROWS = [*range(1, 31), 48, 64, 70, 512]
SHAPES = [(64, 64), (33, 7), (1, 130), (100, 1), (63, 65), (2, 32)]
"""Inputs and outputs."""


def make(*shape: int) -> Tensor:
    return torch.randn(shape).to(BFLOAT16)


def call(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    output: Tensor = torch.ops.headway.linear(rows, pack_weight(weight), weight.shape[0], bias)
    return output


def check(output: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Within one rounding to bfloat16 (2^-8 of the result) and the float32 sums' own error (of what was summed)."""
    exact = linear(rows.double(), weight.double(), None if bias is None else bias.double())
    summed = linear(rows.double().abs(), weight.double().abs()) + (0 if bias is None else bias.double().abs())
    error = (output.double() - exact).abs()
    assert output.dtype == BFLOAT16
    assert output.shape == exact.shape
    assert (error <= 2**-8 * exact.abs() + 2**-20 * summed).all(), error.max()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_computes_the_product(num_in: int, num_out: int, has_bias: bool) -> None:
    torch.manual_seed(num_in)
    weight, bias = make(num_out, num_in), make(num_out) if has_bias else None
    for num_rows in ROWS:
        rows = make(num_rows, num_in)
        check(call(rows, weight, bias), rows, weight, bias)


@pytest.mark.usefixtures("level", "several_threads")
@pytest.mark.parametrize("num_rows", [1, 70])
def test_wide_layers_are_divided_among_threads(num_rows: int) -> None:
    rows, weight = make(num_rows, 576), make(3000, 576)
    check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level", "several_threads")
def test_many_rows_of_a_narrow_layer_are_divided_too() -> None:
    rows, weight = make(600, 1536), make(20, 1536)
    check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("num_in", [32, 33])
def test_what_lies_beside_the_rows_is_not_read(num_in: int) -> None:
    around = torch.full((1, 20, num_in + 3), torch.nan, dtype=BFLOAT16)
    rows, weight = around[..., 1 : num_in + 1], make(40, num_in)
    rows.copy_(make(1, 20, num_in))
    check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level")
def test_nothing_is_written_beside_the_outputs() -> None:
    """Blocks of columns end beyond the last output: what they would write there is the next row's beginning."""
    rows, weight = make(3, 16), make(BLOCK + 5, 16)
    for _ in range(20):
        check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16), (0, 16), (1, 0, 16)])
def test_it_takes_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    rows, weight = make(*shape), make(8, 16)
    check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("view", ["columns", "transposed", "reversed rows", "repeated"])
def test_it_takes_rows_however_they_lie(view: str) -> None:
    weight = make(8, 16)
    rows = {
        "columns": make(2, 5, 40)[..., 3:19],
        "transposed": make(16, 5).t(),
        "reversed rows": make(5, 2, 16).transpose(0, 1),
        "repeated": make(1, 16).expand(5, 16),
    }[view]
    check(call(rows, weight), rows, weight)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("special", [torch.nan, torch.inf])
def test_what_is_no_number_stays_in_its_row(special: float) -> None:
    rows, weight = make(3, 16), make(40, 16).abs()
    rows[1, 5] = special
    output = call(rows, weight)
    assert not output[1].isfinite().any()
    assert output[1].isnan().all() == (special is torch.nan)
    check(output[::2], rows[::2], weight)


@pytest.mark.usefixtures("level", "several_threads")
@pytest.mark.parametrize(("num_in", "num_out"), [(101, 50), (1536, 576)])
def test_results_do_not_depend_on_the_other_rows(num_in: int, num_out: int) -> None:
    """So that a sequence's tokens are the same in every batch."""
    rows, weight = make(70, num_in), make(num_out, num_in)
    together = call(rows, weight)
    for row in range(70):
        assert torch.equal(call(rows[row : row + 1], weight)[0], together[row])


@pytest.mark.parametrize(("num_in", "num_out"), SHAPES)
def test_unpacking_gives_back_what_was_packed(num_in: int, num_out: int) -> None:
    weight = make(num_out, num_in)
    packed = pack_weight(weight)
    assert torch.equal(unpack_weight(packed, num_out, num_in), weight)
    assert packed.numel() <= (num_in + 1) * (num_out + BLOCK)


def test_in_plain_torch_it_computes_the_product_too() -> None:
    rows, weight, bias = make(2, 3, 33), make(40, 33), make(40)
    check(linear_reference(rows, pack_weight(weight), 40, bias), rows, weight, bias)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_op_is_what_torch_expects_of_one(has_bias: bool) -> None:
    """Its schema, and its shapes without data, with sizes that may vary."""
    arguments = (make(3, 16), pack_weight(make(40, 16)), 40, make(40) if has_bias else None)
    torch.library.opcheck(torch.ops.headway.linear.default, arguments)


@pytest.mark.usefixtures("kernels")
def test_the_compiler_traces_the_layer_whole() -> None:
    layer = NativeLinear(make(40, 16), make(40))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for num_rows in (2, 5):
        rows = make(1, num_rows, 16)
        with torch.inference_mode():
            assert torch.equal(compiled(rows), layer(rows))


BAD_CALLS = {
    "takes bfloat16": lambda: call(torch.randn(3, 16), make(8, 16)),
    "is not packed": lambda: torch.ops.headway.linear(make(3, 16), make(8, 16), 8),
    "not packed for this kernel": lambda: torch.ops.headway.linear(make(3, 16), make(1, 8, 16, 2), 16),
    "do not fit": lambda: call(make(3, 18), make(8, 16)),
    "at least one element": lambda: torch.ops.headway.linear(make(3, 0), make(1, 0, BLOCK, 2), 8),
    "blocks of columns": lambda: torch.ops.headway.linear(make(3, 16), pack_weight(make(8, 16)), 33),
    "bias must be": lambda: call(make(3, 16), make(8, 16), make(9)),
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("message", BAD_CALLS)
def test_a_call_that_cannot_be_answered_says_why(message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        BAD_CALLS[message]()
