from __future__ import annotations

import weakref

import pytest
import torch
from torch.nn.functional import linear

from headway.engine.packed_linear import PackedLinear, can_pack

CPU = torch.device("cpu")
TYPES = [dtype for dtype in (torch.bfloat16, torch.float32) if can_pack(dtype, CPU)]
pytestmark = pytest.mark.skipif(not TYPES, reason="this CPU packs nothing")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("num_rows", [0, 1, 5, 64, 300])
@pytest.mark.parametrize(("num_in", "num_out"), [(64, 64), (33, 7), (1, 130), (100, 1)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_computes_what_the_plain_layer_computes(
    dtype: torch.dtype, num_rows: int, num_in: int, num_out: int, has_bias: bool
) -> None:
    torch.manual_seed(1)
    weight, rows = torch.randn(num_out, num_in, dtype=dtype), torch.randn(1, num_rows, num_in, dtype=dtype)
    bias = torch.randn(num_out, dtype=dtype) if has_bias else None
    with torch.inference_mode():
        output = PackedLinear(weight, bias)(rows)
    exact = linear(rows.double(), weight.double(), None if bias is None else bias.double())
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-4 if has_bias else 1e-5)


@pytest.mark.parametrize("shape", [(16,), (3, 16), (2, 3, 16)])
def test_it_takes_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    weight, rows = torch.randn(8, 16), torch.randn(shape)
    torch.testing.assert_close(PackedLinear(weight, None)(rows), linear(rows, weight))


def test_it_takes_rows_that_lie_apart() -> None:
    weight, rows = torch.randn(8, 16), torch.randn(1, 5, 40)[..., 3:19]
    torch.testing.assert_close(PackedLinear(weight, None)(rows), linear(rows, weight))


def test_it_keeps_no_plain_weight() -> None:
    weight = torch.randn(64, 64)
    plain = weakref.ref(weight)
    packed = PackedLinear(weight, None)
    del weight
    assert plain() is None
    assert not list(packed.parameters())


@pytest.mark.parametrize(("dtype", "device"), [(torch.float64, "cpu"), (torch.bfloat16, "cuda"), (torch.int8, "cpu")])
def test_what_has_no_kernel_is_not_packed(dtype: torch.dtype, device: str) -> None:
    assert not can_pack(dtype, torch.device(device))
