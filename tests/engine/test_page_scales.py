from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.page_scales import EIGHT_BITS, LARGEST, from_eight_bits, to_eight_bits

SCALE = torch.tensor([2.0, 0.125])


def there_and_back(numbers: torch.Tensor) -> torch.Tensor:
    return from_eight_bits(to_eight_bits(numbers, SCALE), SCALE)


@given(st.floats(-LARGEST, LARGEST, width=32))
def test_a_number_within_reach_is_kept_to_one_sixteenth_or_to_the_smallest_step(number: float) -> None:
    numbers = (number * SCALE)[:, None]
    error = (there_and_back(numbers) - numbers).abs()
    assert (error <= torch.maximum(numbers.abs() / 16, SCALE[:, None] * 2**-10)).all()


def test_a_number_out_of_reach_becomes_the_largest_and_never_infinite() -> None:
    numbers = torch.tensor([[1e6, -torch.inf], [60.0, torch.inf]])
    assert there_and_back(numbers).tolist() == [[896.0, -896.0], [56.0, 56.0]]


def test_what_is_no_number_stays_none() -> None:
    assert there_and_back(torch.full((2, 3), torch.nan)).isnan().all()


def test_every_type_of_a_model_is_taken() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        stored = to_eight_bits(torch.ones(5, 2, 8, dtype=dtype), SCALE)
        assert (stored.dtype, stored.itemsize, stored.shape) == (EIGHT_BITS, 1, (5, 2, 8))
