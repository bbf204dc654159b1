"""What the device does between two steps: nothing, as long as the host is not ready with the next one.

torch's profiler tells when each kernel ran, and which call on the host launched it; the steps of the host are marked in
the same trace. So each kernel has its step, and the time in which none runs, between the last kernel of a step and the
first of the next, is the gap that the host is answerable for:

    host     │ step k       │ step k+1     │ step k+2     │
    device     ███ ██ █████·······███ ██ █████·······███ ██      · between two steps;  blanks: within one

Copies do not count as work: while only they run, the multiprocessors wait. The profiler makes the host slower, so
without it the gap is no longer than this, and a step is shorter.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from loadtest.gpu.bench import Bench
from loadtest.gpu.checks import Finding, Item, Part
from loadtest.gpu.decoding import decoding
from loadtest.row import Aim

MAX_SHARE = Aim(0.03, is_least=False)
FIGURES = (
    "idle_between_steps_share",
    "idle_within_steps_share",
    "profiled_step_seconds",
    "gap_seconds",
    "kernels_per_step",
)
STEP = "headway::step"
LAUNCHES = {"cuda_runtime", "cuda_driver"}
KERNELS = {"cuda": "kernel", "cpu": "cpu_op"}
"""What is work on a device, in the trace's categories. A CPU's operators launch themselves."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """When it ran, in seconds, and in which step it was launched."""

    started: float
    ended: float
    step: int


@dataclass(frozen=True, slots=True)
class Idleness:
    """Of the device, in seconds, from the first kernel of some steps to the first one of the last step."""

    total: float
    between_steps: float
    within_steps: float
    num_steps: int
    num_kernels: int

    @property
    def figures(self) -> dict[str, float]:
        values = (
            self.between_steps / self.total,
            self.within_steps / self.total,
            self.total / self.num_steps,
            self.between_steps / self.num_steps,
            self.num_kernels / self.num_steps,
        )
        return dict(zip(FIGURES, values, strict=True))


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(size), FIGURES, MAX_SHARE) for size in bench.sizes.profiled_batch_sizes]


def measure(bench: Bench) -> Iterator[Finding]:
    sizes = bench.sizes
    for size in sizes.profiled_batch_sizes:
        bench.deadline.require()
        with decoding(bench.engine, size, sizes.context_len, sizes.max_output_len(size)) as sequences:
            # The profiler's own first steps are slow.
            traced(sequences.step, 2, bench.device)
            events = traced(sequences.step, sizes.num_profiled_steps, bench.device)
        yield Finding(_name(size), idleness(kernels(events, bench.device.type)).figures)


def traced(step: Callable[[], object], num_steps: int, device: torch.device) -> list[Mapping[str, Any]]:
    """The profiler's events of so many steps."""
    if device.type == "cuda":
        # Replaying graphs after the profiler was taken down has crashed: https://github.com/pytorch/pytorch/issues/75504
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler:
        for _ in range(num_steps):
            with record_function(STEP):
                step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[Mapping[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def kernels(events: Iterable[Mapping[str, Any]], device_type: str) -> list[Kernel]:
    """In the order in which they began. What was launched outside of any step is left out."""
    events = [event for event in events if event.get("ph") == "X"]
    starts = sorted(event["ts"] for event in events if event.get("cat") == "user_annotation" and event["name"] == STEP)
    launched = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})
    }
    found = []
    step = -1
    for event in sorted(events, key=lambda event: float(event["ts"])):
        if event.get("cat") != KERNELS[device_type]:
            continue
        at = event["ts"] if device_type == "cpu" else launched.get(event.get("args", {}).get("correlation"))
        # A launch that the trace does not know is of the step of the kernel before.
        step = step if at is None else bisect_right(starts, at) - 1
        if step >= 0:
            found.append(Kernel(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6, step))
    return found


def idleness(ran: Sequence[Kernel]) -> Idleness:
    """Raises ``ValueError`` if that is less than three steps: the profiler saw none, or not the device."""
    num_steps = len({kernel.step for kernel in ran}) - 1
    if num_steps < 2:
        raise ValueError("the profiler saw no kernels of several steps; it may not be permitted here")
    last = max(kernel.step for kernel in ran)
    end = min(kernel.started for kernel in ran if kernel.step == last)
    between = within = 0.0
    busy_until, newest = ran[0].started, ran[0].step
    counted = [kernel for kernel in ran if kernel.started <= end]
    for kernel in counted:
        gap = max(0.0, kernel.started - busy_until)
        if kernel.step > newest:
            between += gap
        else:
            within += gap
        busy_until, newest = max(busy_until, kernel.ended), max(newest, kernel.step)
    return Idleness(end - ran[0].started, between, within, num_steps, len(counted) - 1)


def _name(size: int) -> str:
    return f"device idle between steps of {size}"


PART = Part("gap", items, measure, min_seconds=15.0)
