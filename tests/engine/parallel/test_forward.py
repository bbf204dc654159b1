from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.errors import EngineBroken
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.forward import DeviceInputs
from headway.engine.parallel.forward import LeadingForward, header_of, pack, unpack
from headway.engine.step_inputs import build_step_inputs


def make_inputs(*, is_sampled: bool) -> DeviceInputs:
    """Of two sequences, one of them only begun."""
    token_ids = [[5, 2**31 + 6, 7], [8, 9]]
    chunks = [
        ScheduledChunk(
            Sequence(number, JobKey("acme", "a"), SamplingParams(), ids, len(ids), 0.0, page_table=[number, 7]),
            0,
            length,
            is_sampled=length == len(ids),
        )
        for number, (ids, length) in enumerate(zip(token_ids, (2, 2 if is_sampled else 1), strict=True))
    ]
    return DeviceInputs.of(build_step_inputs(StepPlan(1, tuple(chunks)), page_size=2), torch.device("cpu"))


@pytest.mark.parametrize("is_sampled", [True, False], ids=["some rows are sampled", "no row is sampled"])
def test_inputs_arrive_as_they_were(is_sampled: bool) -> None:
    inputs = make_inputs(is_sampled=is_sampled)
    arrived = unpack(pack(inputs), header_of(inputs).forms)
    for name in DeviceInputs.__slots__:
        torch.testing.assert_close(getattr(arrived, name), getattr(inputs, name), rtol=0, atol=0)


def test_a_step_that_may_have_begun_elsewhere_is_not_tried_again() -> None:
    def is_gone(header: bytes) -> None:
        raise BrokenPipeError("rank 1 is gone")

    def forward(inputs: DeviceInputs) -> Tensor:
        raise AssertionError("nobody else would compute it")

    with pytest.raises(EngineBroken, match="rank 1 is gone"):
        LeadingForward(forward, is_gone)(make_inputs(is_sampled=True))
