from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headway.core.batch import ScheduledChunk, StepPlan
from headway.core.job import JobKey, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.forward import DeviceInputs
from headway.engine.input_buffers import ALIGNMENT, HostInputs, PinnedInputs, StepLimits, inputs_for
from headway.engine.step_inputs import StepInputs, build_step_inputs

CPU = torch.device("cpu")
LIMITS = StepLimits(num_tokens=40, num_sequences=4, num_columns=5)
PAGE_SIZE = 4


@dataclass
class Log:
    """What was done with the events of the buffers, each of which has a number."""

    entries: list[tuple[str, int]] = field(default_factory=list)
    num_events: int = 0

    def make_event(self) -> LoggedEvent:
        self.num_events += 1
        return LoggedEvent(self, self.num_events)


@dataclass
class LoggedEvent:
    log: Log
    number: int

    def record(self) -> None:
        self.log.entries.append(("copied", self.number))

    def synchronize(self) -> None:
        self.log.entries.append(("waited for", self.number))


def make_step(*lengths: tuple[int, int], token: int = 7, num_sampled: int = 1) -> StepInputs:
    """Chunks of (start, number of tokens), of which the last ones are sampled."""
    chunks = []
    for number, (start, num_tokens) in enumerate(lengths):
        num_known = start + num_tokens + (number < len(lengths) - num_sampled)
        sequence = Sequence(number, JobKey("acme", "a"), SamplingParams(), [token] * num_known, num_known, 0.0)
        sequence.page_table = list(range(number * 10, number * 10 + -(-num_known // PAGE_SIZE)))
        chunks.append(ScheduledChunk(sequence, start, num_tokens, is_sampled=start + num_tokens == num_known))
    return build_step_inputs(StepPlan(1, tuple(chunks)), PAGE_SIZE)


def make_pinned(log: Log | None = None, limits: StepLimits = LIMITS) -> PinnedInputs:
    return PinnedInputs(limits, CPU, (log or Log()).make_event)


def assert_same(uploaded: DeviceInputs, inputs: StepInputs) -> None:
    for entry in fields(inputs):
        expected, tensor = getattr(inputs, entry.name), getattr(uploaded, entry.name)
        assert tensor.shape == expected.shape
        assert tensor.numpy().dtype == expected.dtype
        assert tensor.numpy().tolist() == expected.tolist()


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 9)), min_size=1, max_size=4))
def test_the_device_gets_what_the_step_has(lengths: list[tuple[int, int]]) -> None:
    inputs = make_step(*lengths)
    uploaded = make_pinned().upload(inputs)
    assert_same(uploaded, inputs)
    assert all(getattr(uploaded, entry.name).data_ptr() % ALIGNMENT == 0 for entry in fields(inputs))


def test_a_step_that_samples_nothing_has_an_empty_array() -> None:
    inputs = make_step((0, 3), (0, 4), num_sampled=0)
    assert len(inputs.sampled_rows) == 0
    assert_same(make_pinned().upload(inputs), inputs)


def test_two_steps_are_on_the_device_at_a_time() -> None:
    pinned = make_pinned()
    first, second = make_step((3, 2), (0, 4)), make_step((9, 1), token=100)
    uploaded = [pinned.upload(first), pinned.upload(second)]
    assert_same(uploaded[0], first)
    assert_same(uploaded[1], second)


def test_a_buffer_is_written_again_only_when_it_has_been_copied() -> None:
    log = Log()
    pinned = make_pinned(log)
    for _ in range(3):
        pinned.upload(make_step((0, 3)))
    rounds = [[("waited for", number), ("copied", number)] for number in (1, 2, 1)]
    assert log.entries == [entry for entries in rounds for entry in entries]


def test_nothing_is_written_while_the_device_may_still_read() -> None:
    log = Log()
    pinned = make_pinned(log)
    first = make_step((0, 3))
    pinned.upload(first)
    pinned.upload(first)
    host = [buffer._array.copy() for buffer in pinned._buffers]

    def still_read(event: LoggedEvent) -> None:
        raise TimeoutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoggedEvent, "synchronize", still_read)
        with pytest.raises(TimeoutError):
            pinned.upload(make_step((0, 3), token=50))
    assert [buffer._array.tolist() for buffer in pinned._buffers] == [array.tolist() for array in host]


def test_the_largest_step_fits_and_a_larger_one_goes_without_buffers() -> None:
    log = Log()
    pinned = make_pinned(log)
    largest, larger = make_step((10, 10), (0, 20), (0, 9), (0, 1), num_sampled=4), make_step((16, 80))
    assert_same(pinned.upload(largest), largest)
    assert len(log.entries) == 2
    assert_same(pinned.upload(larger), larger)
    assert len(log.entries) == 2


def test_a_cpu_uses_the_arrays_themselves() -> None:
    inputs = make_step((0, 3))
    way = inputs_for(CPU, LIMITS)
    assert isinstance(way, HostInputs)
    assert np.shares_memory(way.upload(inputs).token_ids.numpy(), inputs.token_ids)
