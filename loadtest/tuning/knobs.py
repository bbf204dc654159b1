"""What is tuned, what it is tuned for, and what a candidate came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from headway.core.scheduler_config import SchedulerConfig


@dataclass(frozen=True, slots=True)
class Knobs:
    """A candidate: the settings of the scheduler that the search changes."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_chunk: int
    tpot_target: float | None = None

    def apply(self, scheduler: SchedulerConfig) -> SchedulerConfig:
        return replace(
            scheduler,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_prefill_chunk=self.max_prefill_chunk,
            tpot_target=self.tpot_target,
        )

    @property
    def settings(self) -> dict[str, int | float]:
        """By name, without what is not set."""
        named: dict[str, int | float | None] = {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_prefill_chunk": self.max_prefill_chunk,
            "tpot_target": self.tpot_target,
        }
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        text = (
            f"{self.max_num_seqs} sequences, {self.max_num_batched_tokens} tokens, chunks of {self.max_prefill_chunk}"
        )
        return text if self.tpot_target is None else f"{text}, paced at {self.tpot_target:g} s"


@dataclass(frozen=True, slots=True)
class Goal:
    """What ``share`` of the requests is to keep."""

    tpot_seconds: float
    ttft_seconds: float | None = None
    """From when a request is sent, with as many others in the batch as it holds; None: it may take what it takes."""
    share: float = 0.9

    def __str__(self) -> str:
        ttft = "" if self.ttft_seconds is None else f" and TTFT ≤ {self.ttft_seconds:g} s"
        return f"TPOT ≤ {self.tpot_seconds:g} s{ttft} for {self.share:.0%} of the requests"


@dataclass(frozen=True, slots=True)
class Run:
    """One stress of a candidate. Latencies are those that ``share`` of the requests kept."""

    output_tokens_per_s: float
    tpot_seconds: float
    ttft_seconds: float
    num_requests: int
    """That were counted."""
    num_preemptions: int = 0
    details: Mapping[str, float] = field(default_factory=dict)
    """Further figures, for plots."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Knobs, and the runs that were made of them; each figure is their median."""

    knobs: Knobs
    goal: Goal
    runs: Sequence[Run]

    @property
    def output_tokens_per_s(self) -> float:
        return median(run.output_tokens_per_s for run in self.runs)

    @property
    def tpot_seconds(self) -> float:
        return median(run.tpot_seconds for run in self.runs)

    @property
    def ttft_seconds(self) -> float:
        return median(run.ttft_seconds for run in self.runs)

    @property
    def margin(self) -> float:
        """The goal over what was measured, the tighter of both: 1 or more keeps it."""
        return margin(self.goal, self.tpot_seconds, self.ttft_seconds)

    @property
    def keeps(self) -> bool:
        return self.margin >= 1.0


def margin(goal: Goal, tpot_seconds: float, ttft_seconds: float) -> float:
    margins = [goal.tpot_seconds / tpot_seconds] if tpot_seconds else []
    if goal.ttft_seconds is not None and ttft_seconds:
        margins.append(goal.ttft_seconds / ttft_seconds)
    return min(margins, default=1.0)
