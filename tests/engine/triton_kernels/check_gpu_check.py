"""The checks for a GPU (`loadtest.gpu_check`), on kernels that are interpreted."""

from __future__ import annotations

import pytest
import torch

from headway.engine.triton_kernels import op
from headway.engine.triton_kernels.attend import decode_launches
from headway.engine.triton_kernels.nucleus import settle_triton
from loadtest.gpu import nucleus, pages
from loadtest.gpu.bandwidth import DecodeShape, decode_batch
from loadtest.gpu.cases import AttentionCase, attention_error
from tests.engine.triton_kernels.interpreted import CHIP

CPU = torch.device("cpu")
LENGTHS = ((1, 20), (5, 9), (1, 1))


@pytest.fixture(autouse=True)
def chip(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (op, pages):
        monkeypatch.setattr(module, "chip_of", lambda device: CHIP)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_op_passes_its_check(dtype: torch.dtype) -> None:
    case = AttentionCase("a case", LENGTHS, dtype, num_heads=6, num_kv_heads=2, first_page=3, softcap=30.0)
    assert attention_error(case, op.paged_attention_triton, CPU) <= case.tolerance


def test_rotary_positions_pass_theirs() -> None:
    assert pages.rotary_error(CPU, num_tokens=20) <= 1e-5


def test_eight_bits_pass_theirs() -> None:
    assert 0 < pages.eight_bit_error(CPU, LENGTHS) <= 0.06


def test_nuclei_pass_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nucleus, "settle", settle_triton)
    assert nucleus.compare_nuclei(CPU, num_rows=4, vocab_size=300, num_repeats=1)["differing_share"] == 0.0


def test_what_is_timed_computes() -> None:
    batch = decode_batch(DecodeShape(2, 40, 4, 2, 64), CPU)
    output = torch.full_like(batch.query, torch.nan)
    for launch in decode_launches(batch, output, CHIP):
        launch.run()
    assert output.isfinite().all()
