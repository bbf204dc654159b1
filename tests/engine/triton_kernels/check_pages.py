"""Writing pages: as they are, in eight bits, and with rotary positions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headway.engine.page_scales import Scales
from headway.engine.triton_kernels.attend import attention_launches, mixed_launch
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.write import rotate_launch, write_launch
from tests.engine.test_attention import Batch as Example
from tests.engine.test_attention import Layer, dense_attention, make_batch
from tests.engine.triton_kernels.interpreted import CHIP, assert_close, batch_of, poisoned_output

FP8 = torch.float8_e4m3fn
NUM_TOKENS, PAGE_SIZE = 7, 4


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def empty_pages(num_heads: int, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.full((5, PAGE_SIZE, num_heads, dim), torch.nan).to(dtype)


SLOTS = torch.tensor([3, 17, 0, 12, 5, 6, 19])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("num_heads", "dim", "value_dim"), [(1, 64, 64), (3, 80, 17), (40, 256, 8)])
def test_keys_and_values_go_to_their_slots_and_nowhere_else(
    num_heads: int, dim: int, value_dim: int, dtype: torch.dtype
) -> None:
    key = draw(num_heads, NUM_TOKENS, dim, dtype=dtype).transpose(0, 1)
    value = draw(num_heads, NUM_TOKENS, value_dim, dtype=dtype).transpose(0, 1)
    key_pages, value_pages = (empty_pages(num_heads, width, dtype) for width in (dim, value_dim))
    write_launch(key, value, key_pages, value_pages, SLOTS).run()
    for pages, new in ((key_pages, key), (value_pages, value)):
        slots = pages.flatten(0, 1)
        assert torch.equal(slots[SLOTS], new)
        others = [slot for slot in range(len(slots)) if slot not in SLOTS.tolist()]
        assert slots[others].isnan().all()


def test_eight_bits_are_rounded_as_torch_does() -> None:
    exponents = torch.arange(-12.0, 10.0)
    values = torch.cat([2.0**exponents * step for step in torch.arange(1, 2, 1 / 64)])
    values = torch.cat((values, -values, torch.tensor([0.0, 500.0, -1e9])))
    key = values[: len(values) // 7 * 7].view(7, 1, -1)
    pages = [torch.zeros(5, PAGE_SIZE, 1, key.shape[2], dtype=FP8) for _ in range(2)]
    write_launch(key, key, *pages, SLOTS, Scales(torch.ones(1), torch.ones(1))).run()
    assert torch.equal(pages[0].flatten(0, 1)[SLOTS].float(), key.clamp(-448, 448).to(FP8).float())


def test_each_head_has_its_own_scale() -> None:
    key, scale = draw(NUM_TOKENS, 3, 64), torch.tensor([1.0, 0.01, 4.0])
    pages = [torch.zeros(5, PAGE_SIZE, 3, 64, dtype=FP8) for _ in range(2)]
    write_launch(key, 2 * key, *pages, SLOTS, Scales(scale, 2 * scale)).run()
    for written in pages:
        restored = written.flatten(0, 1)[SLOTS].float() * scale[:, None]
        assert (restored - key).abs().max() <= (key.abs() / 16).max() + 2**-9
    assert torch.equal(*(written.view(torch.uint8) for written in pages))


@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_keys_are_rotated_on_their_way_and_queries_too(rotary_dim: int) -> None:
    query, key, value = draw(NUM_TOKENS, 6, 64), draw(NUM_TOKENS, 2, 64), draw(NUM_TOKENS, 2, 24)
    angles = draw(NUM_TOKENS, rotary_dim // 2).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    key_pages, value_pages = empty_pages(2, 64, torch.float32), empty_pages(2, 24, torch.float32)
    rotated = torch.full_like(query, torch.nan)
    rotate_launch(rotated, query, key, value, cos, sin, key_pages, value_pages, SLOTS).run()
    torch.testing.assert_close(rotated, rotate(query, cos, sin))
    torch.testing.assert_close(key_pages.flatten(0, 1)[SLOTS], rotate(key, cos, sin))
    assert torch.equal(value_pages.flatten(0, 1)[SLOTS], value)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The definition, by halves: each pair of columns as a complex number."""
    half = cos.shape[1] // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half : 2 * half].double())
    turned = pairs * torch.complex(cos[:, None, :half].double(), sin[:, None, :half].double())
    return torch.cat((turned.real, turned.imag, x[..., 2 * half :].double()), -1).float()


LAYER = Layer(num_heads=6, num_kv_heads=2, head_dim=80, value_dim=64, page_size=16, scale=80**-0.5)
EIGHT_BIT_LENGTHS = {"decodes": [(1, 700), (1, 33)], "mixed": [(5, 70), (1, 200)]}


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("lengths", EIGHT_BIT_LENGTHS)
def test_attention_over_eight_bits_is_exact_for_what_the_pages_hold(lengths: str, softcap: float) -> None:
    """And within a few per cent of attention over what was written to them."""
    layer = replace(LAYER, softcap=softcap)
    example = make_batch(layer, EIGHT_BIT_LENGTHS[lengths], torch.float16, "cpu")
    batch = eight_bit_batch(example, Scales(torch.tensor([0.5, 0.02]), torch.tensor([0.03, 0.25])))
    output = poisoned_output(batch)
    for launch in attention_launches(batch, output, CHIP):
        launch.run()
    assert_close(output, dense_over_pages(layer, batch))
    error = (output.double() - example.expected).pow(2).mean().sqrt() / example.expected.pow(2).mean().sqrt()
    print(f"{lengths}, {softcap = }: relative error of eight bits {error:.4f}")
    assert error <= 0.06


def eight_bit_batch(example: Example, scales: Scales) -> Batch:
    """All of the example's tokens in pages of eight bits, rounded by torch."""
    batch = batch_of(example, scales)
    for pages, name in ((batch.key_pages, "key"), (batch.value_pages, "value")):
        pages.flatten(0, 1)[example.arguments["slot_mapping"]] = example.arguments[name]
    key_pages, value_pages = (
        (pages.float() / scale[:, None]).clamp(-448, 448).to(FP8)
        for pages, scale in ((batch.key_pages, scales.key), (batch.value_pages, scales.value))
    )
    return replace(batch, key_pages=key_pages, value_pages=value_pages)


def dense_over_pages(layer: Layer, batch: Batch) -> Tensor:
    """Dense attention over the numbers that the pages stand for."""
    outputs = []
    for row, length in enumerate(batch.context_lens.tolist()):
        start, end = batch.query_start[row : row + 2].tolist()
        table = batch.page_table[row, : -(-length // layer.page_size)].long()
        key, value = (
            pages[table].flatten(0, 1)[:length].double() * scale[:, None].double()
            for pages, scale in ((batch.key_pages, batch.scales.key), (batch.value_pages, batch.scales.value))
        )
        outputs.append(dense_attention(layer, batch.query[start:end].double(), key, value, None))
    return torch.cat(outputs)


def test_a_mixed_launch_may_leave_decodes_to_the_other_kernel() -> None:
    example = make_batch(LAYER, [(1, 20), (4, 9)], torch.float16, "cpu")
    batch = batch_of(example)
    output = poisoned_output(batch)
    written = ("key", "value", "key_pages", "value_pages", "slot_mapping")
    write_launch(*(example.arguments[name] for name in written)).run()
    mixed_launch(batch, output, CHIP, skip_decodes=True).run()
    assert output[0].isnan().all()
    assert output[1:].isfinite().all()
