"""Requests of exactly these lengths, and the file that lists them.

A workload file is JSON: ``{"requests": [{"prompt_ids": […], "out_len": n, "gap": g}, …]}``. ``gap`` is the time since
the request before, drawn once from the exponential distribution with mean 1: divided by a rate it makes the same
Poisson process on every machine and for every system under test, so no seed has to travel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.core.job import SamplingParams
from loadtest.errors import BenchInputError

DEFAULT_WORKLOAD = Path(__file__).with_name("workload.json")
"""64 requests of 16 to 256 prompt and 8 to 256 output tokens."""


DEFAULT_TENANT = "loadtest"


class WorkloadError(BenchInputError):
    """The file is no workload."""


@dataclass(frozen=True, slots=True)
class Request:
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int
    """Exactly, whatever the model would like."""
    gap: float = 0.0
    """Since the request before, in mean gaps; in a closed loop, the client's pause before it, in mean pauses."""
    due_at: float | None = None
    """Seconds from the start; None: when the schedule says."""
    tenant: str = DEFAULT_TENANT
    label: str | None = None
    """The kind of request that it is, for the report."""
    priority: int = 0
    cancel_after_seconds: float | None = None
    """Its client gives up so long after it was due, unless it has ended; None: never."""

    @property
    def sampling(self) -> SamplingParams:
        """Greedy, and deaf to EOS, so that every system does the same work."""
        num_tokens = self.num_output_tokens
        return SamplingParams(max_tokens=num_tokens, min_tokens=num_tokens, temperature=0.0, ignore_eos=True)

    def rotated(self, number: int) -> Request:
        """The same tokens from another one on, so that a cache of prefixes does not know it from an earlier run.
        Prompts that begin alike still do, but for ``number`` tokens."""
        start = number % len(self.prompt_token_ids)
        return replace(self, prompt_token_ids=(*self.prompt_token_ids[start:], *self.prompt_token_ids[:start]))


def count_apart(requests: Iterable[Request]) -> int:
    """Those that come at times of their own."""
    return sum(request.due_at is not None for request in requests)


def load_workload(path: Path = DEFAULT_WORKLOAD) -> tuple[Request, ...]:
    """Raises `WorkloadError` with the number of the first request that is none."""
    try:
        requests = tuple(
            _read(number, entry) for number, entry in enumerate(json.loads(path.read_text())["requests"], 1)
        )
    except KeyError as exc:
        raise WorkloadError(f"{path} is no workload: {exc} is missing") from exc
    except (OSError, ValueError, TypeError, RecursionError) as exc:
        raise WorkloadError(f"{path} is no workload: {exc}") from exc
    if not requests:
        raise WorkloadError(f"{path} is no workload: it has no requests")
    return requests


def _read(number: int, entry: Mapping[str, Any]) -> Request:
    """Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    prompt, num_output_tokens, gap = entry["prompt_ids"], entry["out_len"], entry.get("gap", 0)
    if not isinstance(prompt, list) or not prompt or not all(_is_count(token) for token in prompt):
        raise ValueError(f"request {number}: prompt_ids must be a list of token ids, at least one")
    if not _is_count(num_output_tokens) or not num_output_tokens:
        raise ValueError(f"request {number}: out_len must be a whole number, at least 1")
    if not isinstance(gap, int | float) or not 0 <= gap < math.inf:
        raise ValueError(f"request {number}: gap must be a number, 0 or more")
    return Request(tuple(prompt), num_output_tokens, float(gap))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
