"""What a service promises of each request, and which requests kept it (goodput: Zhong et al., OSDI '24)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.errors import BenchInputError
from loadtest.recording import Outcome, Recording, Timeline

FORM = "ttft=SECONDS,tpot=SECONDS,e2e=SECONDS"


@dataclass(frozen=True, slots=True)
class Slo:
    """Each the most that it may take; None: no promise."""

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    """On average over the request's tokens."""
    e2e_seconds: float | None = None

    def is_kept(self, timeline: Timeline) -> bool:
        """By a request that was completed; a request of one token has no time per token to keep."""
        pairs = (
            (self.ttft_seconds, timeline.ttft_seconds),
            (self.tpot_seconds, timeline.tpot_seconds),
            (self.e2e_seconds, timeline.e2e_seconds),
        )
        return timeline.is_complete and all(
            most is None or measured is None or measured <= most for most, measured in pairs
        )


def parse_slo(text: str) -> Slo:
    """Raises `BenchInputError` for what has not the form ``ttft=0.5,tpot=0.1``."""
    promises: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if f"{name}_seconds" in promises:
            raise BenchInputError(f"{name} is promised twice; give each once")
        try:
            promises[f"{name}_seconds"] = float(value)
            Slo(**promises)
        except (ValueError, TypeError) as exc:
            raise BenchInputError(f"{part.strip()!r} is no promise; write {FORM}, any of them") from exc
    if not all(0 < seconds < math.inf for seconds in promises.values()):
        raise BenchInputError(f"{text!r} promises nothing that can be kept or broken; give seconds above 0")
    return Slo(**promises)


def goodput(recording: Recording, slo: Slo | None) -> dict[str, Any] | None:
    """``share`` is of the requests that nobody cancelled on purpose."""
    if slo is None:
        return None
    counted = [line for line in recording.timelines if line.outcome is not Outcome.CANCELLED]
    num_kept = sum(slo.is_kept(line) for line in counted)
    duration = recording.duration_seconds
    return {
        "slo": asdict(slo),
        "share": num_kept / len(counted) if counted else 0.0,
        "requests_per_s": num_kept / duration if duration else 0.0,
    }
