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


def make_chunk(number: int, token_ids: list[int], num_tokens: int) -> ScheduledChunk:
    sequence = Sequence(
        number, JobKey("acme", "a"), SamplingParams(), token_ids, len(token_ids), 0.0, page_table=[number, 7]
    )
    return ScheduledChunk(sequence, 0, num_tokens, is_sampled=num_tokens == len(token_ids))


def make_inputs(*, is_sampled: bool) -> DeviceInputs:
    """Of two sequences, the first of them only begun."""
    chunks = (make_chunk(0, [5, 2**31 + 6, 7], 2), make_chunk(1, [8, 9], 2 if is_sampled else 1))
    return DeviceInputs.of(build_step_inputs(StepPlan(1, chunks), page_size=2), torch.device("cpu"))


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
