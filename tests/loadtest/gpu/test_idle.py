"""What a device does between two steps, read from a trace."""

from __future__ import annotations

import pytest

from loadtest.gpu import idle
from loadtest.gpu.idle import Kernel, idleness, kernels
from loadtest.gpu.run import run_parts


def step_mark(ts, dur=90):
    return {"ph": "X", "cat": "user_annotation", "name": idle.STEP, "ts": ts, "dur": dur}


def launch(correlation, ts, cat="cuda_runtime"):
    return {"ph": "X", "cat": cat, "name": "cudaGraphLaunch", "ts": ts, "dur": 5, "args": {"correlation": correlation}}


def kernel(correlation, ts, dur, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": "k", "ts": ts, "dur": dur, "args": {"correlation": correlation}}


def test_a_kernel_is_of_the_step_that_launched_it_however_late_it_runs():
    events = [
        step_mark(100),
        step_mark(200),
        launch(1, 110),
        launch(2, 210, cat="cuda_driver"),
        kernel(1, 150, 30),
        kernel(1, 220, 30),  # the same graph, still at work in the next step's time
        kernel(2, 250, 30),
        kernel(9, 280, 10),  # whose launch is not in the trace
        kernel(2, 400, 30, cat="gpu_memcpy"),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]
    assert [found.step for found in kernels(events, "cuda")] == [0, 0, 1, 1]
    assert kernels(events, "cuda")[0] == Kernel(pytest.approx(150e-6), pytest.approx(180e-6), 0)


def test_what_was_launched_before_the_first_step_is_left_out():
    events = [launch(1, 50), kernel(1, 60, 10), step_mark(100), launch(2, 110), kernel(2, 120, 10)]
    assert [found.step for found in kernels(events, "cuda")] == [0]


def test_time_without_a_kernel_is_between_two_steps_or_within_one():
    ran = [
        Kernel(0.0, 1.0, 0),
        Kernel(1.5, 3.0, 0),  # 0.5 within
        Kernel(5.0, 8.0, 1),  # 2 between
        Kernel(5.5, 6.0, 1),  # side by side
        Kernel(9.0, 10.0, 2),  # 1 between
        Kernel(12.0, 13.0, 2),  # after the first of the last step: not counted
    ]
    found = idleness(ran)
    assert (found.total, found.between_steps, found.within_steps, found.num_steps) == (9.0, 3.0, 0.5, 2)
    assert found.figures["idle_between_steps_share"] == pytest.approx(3 / 9)
    assert found.figures["gap_seconds"] == 1.5
    assert found.figures["kernels_per_step"] == 2


def test_steps_that_overlap_have_no_gap():
    assert idleness([Kernel(0, 2, 0), Kernel(2, 4, 1), Kernel(3.5, 5, 0), Kernel(5, 7, 2)]).between_steps == 0


@pytest.mark.parametrize("ran", [[], [Kernel(0, 1, 0)], [Kernel(0, 1, 0), Kernel(1, 2, 1)]], ids=len)
def test_a_profiler_that_sees_nothing_is_no_device_without_gaps(ran):
    with pytest.raises(ValueError, match="no kernels"):
        idleness(ran)


def test_the_steps_of_an_engine_are_found_in_a_real_trace(any_bench):
    (check,) = run_parts(any_bench, [idle.PART], lambda check: None)
    assert check.note == ""
    assert 0 < check.figures["idle_between_steps_share"] < 1
    assert check.figures["kernels_per_step"] > 20
