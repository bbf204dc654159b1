"""The workload: which requests, of exactly which lengths, and when each of them comes.

A workload file is JSON: ``{"requests": [{"prompt_ids": […], "out_len": n, "gap": g}, …]}``. ``gap`` is the time since
the request before, drawn once from the exponential distribution with mean 1: divided by a rate it makes the same
Poisson process on every machine and for every system under test, so no seed has to travel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from pathlib import Path

from headway.core.errors import HeadwayError
from headway.core.job import SamplingParams

DEFAULT_WORKLOAD = Path(__file__).with_name("workload.json")
"""64 requests of 16 to 256 prompt and 8 to 256 output tokens."""


class Arrivals(StrEnum):
    BURST = "burst"
    """All at once."""
    POISSON = "poisson"
    """One by one, at random moments, at a given mean rate."""


class WorkloadError(HeadwayError):
    """The file is no workload."""


@dataclass(frozen=True, slots=True)
class Request:
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int
    """Exactly, whatever the model would like."""
    gap: float
    """Since the request before, in mean gaps."""

    @property
    def sampling(self) -> SamplingParams:
        """Greedy, and deaf to EOS, so that every system does the same work."""
        num_tokens = self.num_output_tokens
        return SamplingParams(max_tokens=num_tokens, min_tokens=num_tokens, temperature=0.0, ignore_eos=True)


def load_workload(path: Path = DEFAULT_WORKLOAD) -> tuple[Request, ...]:
    """Raises `WorkloadError`."""
    try:
        entries = json.loads(path.read_text())["requests"]
        return tuple(
            Request(tuple(entry["prompt_ids"]), int(entry["out_len"]), float(entry.get("gap", 0.0)))
            for entry in entries
        )
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise WorkloadError(f"{path} is no workload: {type(exc).__name__}: {exc}") from exc


def arrival_times(requests: Sequence[Request], arrivals: Arrivals, rate: float | None) -> list[float]:
    """Seconds from the start at which each request comes; ``rate`` in requests per second."""
    if arrivals is Arrivals.BURST:
        return [0.0] * len(requests)
    if rate is None or rate <= 0:
        raise WorkloadError("Poisson arrivals need a rate above 0, in requests per second")
    return [moment / rate for moment in accumulate(request.gap for request in requests)]
