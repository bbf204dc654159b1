"""The op as models call it, through `op.py`: eight bits, rotary positions, both, against the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headway.engine.page_scales import to_eight_bits
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.triton_kernels import op
from headway.engine.triton_kernels.launch import Chip
from tests.engine.test_attention import Batch, Layer, make_batch
from tests.engine.triton_kernels.interpreted import CHIP, TOLERANCES

LAYER = Layer(num_heads=6, num_kv_heads=2, head_dim=80, value_dim=64, page_size=16, scale=80**-0.5)
LENGTHS = {"decodes": [(1, 700), (1, 33), (1, 1)], "mixed": [(5, 70), (1, 200), (40, 40)]}
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
BATCHES = pytest.mark.parametrize("lengths", LENGTHS)


@pytest.fixture(autouse=True)
def chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "chip_of", lambda device: CHIP)


def example(lengths: str, dtype: torch.dtype, layer: Layer = LAYER) -> Batch:
    return make_batch(layer, LENGTHS[lengths], dtype, "cpu")


def in_eight_bits(batch: Batch) -> Batch:
    scales = {"key_scales": torch.tensor([0.125, 0.03]), "value_scales": torch.tensor([0.01, 0.25])}
    pages = {
        name: to_eight_bits(batch.arguments[name], scale)
        for name, scale in zip(("key_pages", "value_pages"), scales.values(), strict=True)
    }
    return replace(batch, arguments={**batch.arguments, **scales, **pages}, key_pages=pages["key_pages"])


def turning(batch: Batch, num_columns: int) -> Batch:
    num_tokens = len(batch.arguments["query"])
    angles = torch.randn(num_tokens, num_columns // 2, generator=torch.Generator().manual_seed(5)).repeat(1, 2)
    dtype = batch.arguments["query"].dtype
    added = {"cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}
    return replace(batch, arguments={**batch.arguments, **added})


def assert_like_the_reference(one: Batch, other: Batch, tolerance: float | None = None) -> None:
    """Two of the same batch: outputs agree, and so do pages, save for the last bit of keys that were turned."""
    output = op.paged_attention_triton(**one.arguments)
    error = (output.double() - paged_attention_reference(**other.arguments).double()).abs().max().item()
    assert error <= (tolerance or TOLERANCES[output.dtype])
    slots = one.arguments["slot_mapping"]
    for name in ("key_pages", "value_pages"):
        written, expected = (batch.arguments[name].flatten(0, 1)[slots].double() for batch in (one, other))
        last_bit = torch.finfo(one.arguments[name].dtype).eps if name == "key_pages" and "cos" in one.arguments else 0
        assert ((written - expected).abs() <= expected.abs() * last_bit + 2**-9 * (last_bit > 0)).all()


@DTYPES
@BATCHES
def test_eight_bits_are_written_and_read_as_in_the_reference(lengths: str, dtype: torch.dtype) -> None:
    assert_like_the_reference(*(in_eight_bits(example(lengths, dtype)) for _ in range(2)))


@DTYPES
@BATCHES
@pytest.mark.parametrize("num_columns", [80, 32])
def test_positions_are_turned_on_the_way_as_in_the_reference(
    lengths: str, dtype: torch.dtype, num_columns: int
) -> None:
    assert_like_the_reference(*(turning(example(lengths, dtype), num_columns) for _ in range(2)))


@BATCHES
def test_both_together(lengths: str) -> None:
    layer = replace(LAYER, softcap=5.0, sliding_window=50, has_sinks=True)
    batches = (turning(in_eight_bits(example(lengths, torch.float16, layer)), 80) for _ in range(2))
    assert_like_the_reference(*batches, tolerance=0.03)  # a last bit of eight is worth more


def test_a_chip_that_cannot_convert_eight_bits_leaves_them_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "chip_of", lambda device: Chip(86, 4))
    monkeypatch.setattr(op, "run", lambda *_: pytest.fail("a kernel ran"))
    arguments = in_eight_bits(example("mixed", torch.float16)).arguments
    assert op.paged_attention_triton(**arguments).isfinite().all()
