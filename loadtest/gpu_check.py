"""Checks the GPU kernels on the GPU at hand: that they compute what they should, and how fast they read.

    python -m loadtest.gpu_check                      some minutes, the first time mostly compiling
    python -m loadtest.gpu_check --only attention --repeats 20 --json check.json

Exit status: 0 all checks passed, 1 one failed or missed its aim, 2 wrong arguments, 3 there is no GPU that could be
checked. Nothing is downloaded; all numbers are drawn here.

What needs Triton is imported where it is used: a machine without a GPU may lack it, and is to be told about the GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headway.engine.triton_kernels.kernels import MIN_CAPABILITY, use_triton_kernels
from loadtest.gpu_cases import attention_cases, attention_error

NO_GPU = 3
MIN_EIGHT_BIT_CAPABILITY = (8, 9)
MIN_COPY_SHARE = 0.8
"""Aim: of a device copy's rate, the decode kernel's at 64 sequences of 4,096 tokens."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    part: str
    name: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.part:10}  {self.name:44}  {self.detail}"


def check_attention(device: torch.device, num_repeats: int) -> Iterator[Check]:
    """The op, as models call it, against float64."""
    from headway.engine.attention import paged_attention

    for case in attention_cases():
        error = attention_error(case, paged_attention, device)
        yield Check("attention", case.name, error <= case.tolerance, f"error {error:.1e}, at most {case.tolerance:.0e}")


def check_pages(device: torch.device, num_repeats: int) -> Iterator[Check]:
    """What the op does not call yet: rotary positions on the way to the pages, and eight bits."""
    from loadtest.gpu_pages import eight_bit_error, rotary_error

    rotary = rotary_error(device)
    yield Check("pages", "rotary positions on the way", rotary <= 1e-5, f"error {rotary:.1e}, at most 1e-05")
    if torch.cuda.get_device_capability(device) < MIN_EIGHT_BIT_CAPABILITY:
        return
    eight = eight_bit_error(device)
    yield Check("pages", "eight bits", eight <= 0.06, f"relative error {eight:.4f}, at most 0.06")


def check_capture(device: torch.device, num_repeats: int) -> Iterator[Check]:
    """A captured decode, replayed over other numbers, gives the very bits of an ordinary one."""
    from loadtest.gpu_pages import captured_equals_plain

    same = captured_equals_plain(device)
    yield Check("capture", "decodes, replayed with longer contexts", same, "same bits" if same else "other bits")


def check_bandwidth(device: torch.device, num_repeats: int) -> Iterator[Check]:
    from loadtest.gpu_timing import DecodeShape, time_decode

    timing = time_decode(DecodeShape(), device, num_repeats)
    detail = (
        f"{timing.seconds * 1e6:.0f} us, {timing.bytes_per_s / 1e9:.0f} GB/s, {timing.share:.0%} of a copy's "
        f"{timing.copy_bytes_per_s / 1e9:.0f} GB/s; aim {MIN_COPY_SHARE:.0%}"
    )
    yield Check("bandwidth", "decode, 64 sequences of 4,096 tokens", timing.share >= MIN_COPY_SHARE, detail)


PARTS: dict[str, Callable[[torch.device, int], Iterator[Check]]] = {
    "attention": check_attention,
    "pages": check_pages,
    "capture": check_capture,
    "bandwidth": check_bandwidth,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    obstacle = find_obstacle()
    if obstacle is not None:
        print(f"nothing was checked: {obstacle}", file=sys.stderr)
        return NO_GPU
    device = torch.device("cuda", torch.cuda.current_device())
    machine = describe(device)
    print(json.dumps(machine), flush=True)
    checks = []
    for part in options.only:
        for check in run_part(part, device, options.repeats):
            print(check, flush=True)
            checks.append(check)
    if options.json is not None:
        options.json.write_text(json.dumps(report(machine, checks), indent=2))
    print(summary(checks))
    return 0 if all(check.passed for check in checks) else 1


def run_part(part: str, device: torch.device, num_repeats: int) -> Iterator[Check]:
    """What breaks off one part is a failed check, and the other parts go on."""
    try:
        yield from PARTS[part](device, num_repeats)
    except Exception as error:
        yield Check(part, "broke off", False, f"{type(error).__name__}: {error}")


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
    import triton

    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "num_multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def report(machine: dict[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    return {"machine": machine, "passed": all(check.passed for check in checks), "checks": [*map(asdict, checks)]}


def summary(checks: Sequence[Check]) -> str:
    failed = [f"{check.part}: {check.name}" for check in checks if not check.passed]
    return f"{len(checks) - len(failed)} passed, {len(failed)} failed" + "".join(f"\n  {name}" for name in failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts; default: all")
    parser.add_argument("--repeats", type=_positive, default=20, help="replays that a time is the median of")
    parser.add_argument("--json", type=Path, help="also write the checks to this file")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
