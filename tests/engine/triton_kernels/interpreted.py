"""What the checks of kernels in Triton's interpreter share. They run in a process of their own (`test_interpreted`),
because Triton decides when it is imported whether it compiles or interprets."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.engine.page_scales import Scales
from headway.engine.triton_kernels.batch import Batch
from headway.engine.triton_kernels.launch import Chip
from headway.engine.triton_kernels.op import run
from tests.engine.test_attention import Batch as Example

TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}
CHIP = Chip(90, 4)


def poisoned_output(batch: Batch) -> Tensor:
    shape = (*batch.query.shape[:2], batch.value_dim)
    return torch.full(shape, torch.nan, dtype=batch.query.dtype)


def batch_of(example: Example, scales: Scales | None = None) -> Batch:
    written = {"key", "value", "slot_mapping"}
    return Batch(**{name: value for name, value in example.arguments.items() if name not in written}, scales=scales)


def attended(example: Example, chip: Chip = CHIP) -> Tensor:
    """What the op gives for ``example``, whose pages it writes."""
    batch = batch_of(example)
    output = poisoned_output(batch)
    key, value, slots = (example.arguments[name] for name in ("key", "value", "slot_mapping"))
    run(batch, key, value, slots, output, chip)
    return output


def assert_close(output: Tensor, expected: Tensor) -> None:
    error = (output.double() - expected).abs().max().item()
    assert error <= TOLERANCES[output.dtype], error  # NaN is not ≤ either
