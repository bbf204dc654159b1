"""The pointwise ops against float64, in plain torch and on every instruction set that this CPU can run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from headway.engine.pointwise import ACTIVATIONS, gated_reference, rms_norm_reference, rotary_reference

DTYPES = [torch.bfloat16, torch.float32]
SHAPES = [(5,), (7, 33), (1, 9, 576), (1, 3, 2, 80), (2, 3, 2, 16), (1, 300, 512)]
"""The last one is enough work for several threads."""

pytestmark = pytest.mark.usefixtures("level", "several_threads")


def make(*shape: int, dtype: torch.dtype) -> Tensor:
    return (3 * torch.randn(shape)).to(dtype)


def apart(tensor: Tensor) -> Tensor:
    """The same numbers in rows that lie apart, as parts of merged layers have them."""
    wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 7), torch.nan, dtype=tensor.dtype)
    view = wide[..., 3 : 3 + tensor.shape[-1]]
    return view.copy_(tensor)


def check(output: Tensor, exact: Tensor, dtype: torch.dtype, num_roundings: int = 1, absolute: float = 1e-6) -> None:
    """Within so many roundings to the type of the result, and float32's own error."""
    unit = (1 + torch.finfo(dtype).eps / 2) ** num_roundings - 1 + 4e-6
    assert output.dtype == dtype
    assert output.shape == exact.shape
    assert ((output.double() - exact).abs() <= unit * exact.abs() + absolute).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rounds_first", [False, True])
def test_a_norm_divides_by_the_root_of_the_mean_square(
    shape: tuple[int, ...], dtype: torch.dtype, rounds_first: bool
) -> None:
    rows, weight = make(*shape, dtype=dtype), torch.randn(shape[-1])
    wide = rows.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    for input in (rows, apart(rows)):
        output = torch.ops.headway.rms_norm(input, weight, 1e-5, rounds_first)
        check(output, exact, dtype, 1 + rounds_first)
        check(rms_norm_reference(input, weight, 1e-5, rounds_first), exact, dtype, 1 + rounds_first)


def test_a_norm_rounds_where_it_is_told_to() -> None:
    rows, weight = make(40, 64, dtype=torch.bfloat16), torch.randn(64)
    for rounds_first in (False, True):
        output = torch.ops.headway.rms_norm(rows, weight, 1e-5, rounds_first)
        differing = (output != rms_norm_reference(rows, weight, 1e-5, rounds_first)).float().mean()
        assert differing < 0.01
        assert (output != rms_norm_reference(rows, weight, 1e-5, not rounds_first)).float().mean() > 0.05


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", range(len(ACTIVATIONS)))
def test_a_gate_lets_through_what_its_activation_says(
    shape: tuple[int, ...], dtype: torch.dtype, activation: int
) -> None:
    gate, up = make(*shape, dtype=dtype), make(*shape, dtype=dtype)
    wide = gate.double()
    exact = (silu(wide) if ACTIVATIONS[activation] == "silu" else gelu(wide, approximate="tanh")) * up.double()
    for one, other in ((gate, up), (apart(gate), apart(up))):
        check(torch.ops.headway.gated(one, other, activation), exact, dtype, 2)
        check(gated_reference(one, other, activation), exact, dtype, 2, absolute=3e-5)  # torch's 1 + tanh cancels


@pytest.mark.parametrize("activation", range(len(ACTIVATIONS)))
def test_an_activation_is_exact_far_out(activation: int) -> None:
    gate = torch.tensor([-1e30, -200.0, -90.0, -30.0, -5.0, -1e-20, 0.0, 1e-20, 5.0, 90.0, 1e30])
    ones = torch.ones_like(gate)
    output = torch.ops.headway.gated(gate, ones, activation)
    torch.testing.assert_close(output, gated_reference(gate, ones, activation), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 18, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("num_tokens", [1, 40])
def test_rotary_positions_turn_the_halves_of_a_head(width: int, num_tokens: int, dtype: torch.dtype) -> None:
    merged = make(1, num_tokens, 12 * width, dtype=dtype)
    query = merged[..., : 9 * width].view(1, num_tokens, 9, width).transpose(1, 2)
    key = merged[..., 9 * width :].view(1, num_tokens, 3, width).transpose(1, 2)
    cos, sin = make(1, num_tokens, width, dtype=dtype), make(1, num_tokens, width, dtype=dtype)
    exact = rotary_reference(*(tensor.double() for tensor in (query, key, cos, sin)))
    largest = 3 * torch.finfo(dtype).eps * max(heads.abs().max().item() for heads in exact)
    for output, reference in zip(torch.ops.headway.rotary(query, key, cos, sin), exact, strict=True):
        assert output.is_contiguous()
        torch.testing.assert_close(output.double(), reference, rtol=0, atol=largest)


def test_rotary_positions_round_as_plain_torch_does() -> None:
    shapes = ((1, 4, 9, 64), (1, 2, 9, 64), (1, 9, 64), (1, 9, 64))
    inputs = [make(*shape, dtype=torch.bfloat16) for shape in shapes]
    for output, reference in zip(torch.ops.headway.rotary(*inputs), rotary_reference(*inputs), strict=True):
        assert torch.equal(output, reference)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_nan_stays_one_and_spoils_no_other(dtype: torch.dtype) -> None:
    rows, ones = make(3, 48, dtype=dtype), torch.ones(48)
    rows[1, 5] = torch.nan
    normed = torch.ops.headway.rms_norm(rows, ones, 1e-5, False)
    gated = torch.ops.headway.gated(rows, ones.to(dtype).expand(3, 48), 0)
    assert normed[1].isnan().all()
    assert gated[1, 5].isnan()
    assert not normed[[0, 2]].isnan().any()
    assert gated.isnan().sum() == 1


def test_no_rows_are_no_rows() -> None:
    none = torch.empty(0, 64)
    assert torch.ops.headway.rms_norm(none, torch.ones(64), 1e-5, False).shape == (0, 64)
    assert torch.ops.headway.gated(none, none, 0).shape == (0, 64)
    heads, positions = torch.empty(1, 2, 0, 64), torch.empty(1, 0, 64)
    assert torch.ops.headway.rotary(heads, heads, positions, positions)[0].shape == (1, 0, 2, 64)


ROWS, HEADS, POSITIONS = torch.ones(2, 8), torch.ones(1, 2, 3, 8), torch.ones(1, 3, 8)
WRONG = {
    "another width": lambda ops: ops.rms_norm(ROWS, torch.ones(7), 1e-5, False),
    "a weight of another type": lambda ops: ops.rms_norm(ROWS, torch.ones(8).bfloat16(), 1e-5, False),
    "float64": lambda ops: ops.rms_norm(ROWS.double(), torch.ones(8), 1e-5, False),
    "shapes that differ": lambda ops: ops.gated(ROWS, ROWS[:1], 0),
    "types that differ": lambda ops: ops.gated(ROWS, ROWS.bfloat16(), 0),
    "no such activation": lambda ops: ops.gated(ROWS, ROWS, 2),
    "two sequences": lambda ops: ops.rotary(HEADS.repeat(2, 1, 1, 1), HEADS, POSITIONS, POSITIONS),
    "fewer positions than tokens": lambda ops: ops.rotary(HEADS, HEADS, POSITIONS[:, :2], POSITIONS[:, :2]),
    "an odd width": lambda ops: ops.rotary(HEADS[..., :7], HEADS[..., :7], POSITIONS[..., :7], POSITIONS[..., :7]),
}


@pytest.mark.parametrize("call", WRONG)
def test_tensors_that_do_not_fit_are_refused(call: str) -> None:
    with pytest.raises(RuntimeError):
        WRONG[call](torch.ops.headway)
