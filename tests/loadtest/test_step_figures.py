from __future__ import annotations

from headway.core.job import FinishReason
from headway.core.stats import StepStats
from loadtest.recording import Recording, StepEnd, StepLog, Timeline
from loadtest.step_figures import MAX_ENTRIES, step_columns


def step(seconds: float = 0.1, num_prefill: int = 0, num_decode: int = 2) -> StepStats:
    return StepStats(1, seconds, 0.001, num_prefill, num_decode, num_decode)


def log(*moments: tuple[float, StepStats]) -> StepLog:
    return StepLog([taken for _, taken in moments], ends=[StepEnd(at, taken.num_sequences) for at, taken in moments])


def line(due_at: float, queue_seconds: float | None, ended_at: float = 9.0) -> Timeline:
    made = Timeline(due_at, 1, queue_seconds=queue_seconds)
    made.end(FinishReason.LENGTH, ended_at)
    return made


def test_there_is_one_entry_per_step_in_columns_of_equal_length():
    columns = step_columns(Recording([line(0.0, 0.5)], log((1.0, step(num_prefill=7)), (2.0, step(0.3))), {}))
    assert columns == {
        "seconds": [1.0, 2.0],
        "num_decodes": [2, 2],
        "num_prefill_tokens": [7, 0],
        "num_running": [2, 2],
        "num_waiting": [0, 0],
        "step_seconds": [0.1, 0.3],
    }


def test_a_request_waits_from_when_it_is_due_until_it_is_granted_or_ends():
    lines = [line(0.0, 0.0), line(0.5, 2.0), line(1.5, None, ended_at=3.5)]
    moments = [(at, step()) for at in (0.4, 1.0, 2.0, 3.0, 4.0)]
    assert step_columns(Recording(lines, log(*moments), {}))["num_waiting"] == [0, 1, 2, 1, 0]


def test_where_nobody_tells_of_the_queue_nothing_is_said_of_it():
    columns = step_columns(Recording([line(0.0, None)], log((1.0, step())), {}))
    assert columns["num_waiting"] == [None]


def test_without_steps_or_their_times_there_are_no_columns():
    assert step_columns(Recording([line(0.0, None)], StepLog(), {})) is None
    assert step_columns(Recording([line(0.0, None)], StepLog([step()]), {})) is None


def test_many_steps_are_thinned_and_no_spike_is_lost():
    moments = [(float(number), step(9.0 if number == 4321 else 0.1)) for number in range(5000)]
    columns = step_columns(Recording([line(0.0, 0.0)], log(*moments), {}))
    assert MAX_ENTRIES / 2 < len(columns["seconds"]) <= MAX_ENTRIES
    assert columns["seconds"] == sorted(columns["seconds"])
    assert max(columns["step_seconds"]) == 9.0
