"""Checks the engine and its kernels on the GPU at hand: that they compute what they should, and how fast.

    python -m loadtest.gpu_check                                  some minutes, the first time mostly compiling
    python -m loadtest.gpu_check --only steps gap --json gpu.json

What does not fit into --minutes is reported as not run; no part takes the time that the ones after it need at least.
Exit status: 0 everything was run and met its aim, 1 something failed, missed its aim, was not run or hung, 2 wrong
arguments, 3 there is no GPU that could be checked. Nothing is downloaded, no weights are read or written: all numbers
are drawn here. The machine must be otherwise idle.
"""

# What needs Triton is imported where it is used: a machine without a GPU may lack it, and is to be told about the GPU.

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from headway.engine.triton_kernels.kernels import MIN_CAPABILITY, use_triton_kernels
from loadtest.gpu.deadline import Deadline

NO_GPU = 3
PART_NAMES = ("correctness", "bandwidth", "start", "steps", "prefill", "peer", "gap", "waits", "rivals")
"""Of `loadtest.gpu.parts`, in order."""
DEFAULT_MINUTES = 5.8
"""All of it is meant to fit into six, with what starting takes."""
STDERR = 2
HANG_SECONDS = 30.0
"""Beyond its time, after which the process ends itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    deadline = Deadline(60 * options.minutes)
    obstacle = find_obstacle()
    if obstacle is not None:
        print(f"nothing was checked: {obstacle}", file=sys.stderr)
        return NO_GPU
    device = torch.device("cuda", torch.cuda.current_device())
    # A kernel that never ends cannot be broken off from here: then at least where, and what was found until then.
    faulthandler.dump_traceback_later(deadline.left + HANG_SECONDS, exit=True, file=STDERR)
    try:
        return check(device, options, deadline)
    finally:
        faulthandler.cancel_dump_traceback_later()


def check(device: torch.device, options: argparse.Namespace, deadline: Deadline) -> int:
    """The exit status. The file is written anew after each part, so that it is there whatever happens then."""
    from loadtest.gpu.bench import Bench, BenchSettings, Sizes
    from loadtest.gpu.checks import Check
    from loadtest.gpu.parts import PARTS
    from loadtest.gpu.report import line, summary, to_json, write
    from loadtest.gpu.run import planned, run_parts

    machine, started = describe(device), time.monotonic()
    print(json.dumps(machine), flush=True)
    machine["engine"] = stages = []

    def say(stage: str) -> None:
        """How the engine came to be: whether it is compiled and captured, above all."""
        print(f"engine: {stage}", flush=True)
        stages.append(stage)

    logging.getLogger("headway").addHandler(_Warnings(say))
    bench = Bench(BenchSettings(device, Sizes(), options.repeats), deadline, say)
    checks: list[Check] = []
    parts = [PARTS[name] for name in options.only]

    def save(num_run: int) -> None:
        if options.json is not None:
            found = [*checks, *planned(bench, parts[num_run:])]
            write(options.json, to_json(machine, found, time.monotonic() - started))

    save(0)
    for number, part in enumerate(parts, 1):
        checks += run_parts(bench, [part], lambda check: print(line(check), flush=True), parts[number:])
        save(number)
    print(summary(checks))
    return 0 if to_json(machine, checks)["passed"] else 1


class _Warnings(logging.Handler):
    """Tells them to ``say``: a model that could not be compiled is the first thing to know about its times."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(f"warning: {record.getMessage()}")
        if record.exc_info is not None:
            traceback.print_exception(record.exc_info[1])


def find_obstacle() -> str | None:
    """Why the kernels cannot be checked here; None: they can."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no CUDA GPU here"
    capability = torch.cuda.get_device_capability()
    if capability < MIN_CAPABILITY:
        return "this GPU's compute capability is {}.{}, and the kernels need 8.0".format(*capability)
    if not use_triton_kernels(torch.device("cuda", torch.cuda.current_device())):
        return "the kernels cannot be loaded (see the warning)"
    return None


def describe(device: torch.device) -> dict[str, Any]:
    import transformers
    import triton

    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "num_multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=PART_NAMES, default=list(PART_NAMES), help="parts; default: all")
    parser.add_argument("--minutes", type=_minutes, default=DEFAULT_MINUTES, help="that it may take; default: 5.8")
    parser.add_argument("--repeats", type=_positive, default=20, help="replays that a kernel's time is the median of")
    parser.add_argument("--json", type=Path, help="also write the checks to this file")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _minutes(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError("must be more than 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
