"""Continuous over static batching at full size, as schedules: `python -m loadtest.claims.schedules`.

Every step takes as long as any other, so the figures say what the schedule alone gives; how long a step of so many
sequences takes on a machine is a matter of `headway bench`. Each ratio is of two simulations of the same jobs,
and its spread is over five draws of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from headway.core.scheduler_config import Batching, PrefixSharing, SchedulerConfig
from loadtest.claims.field_benchmark import CAPS, NUM_PROMPT_TOKENS, field_jobs, ideal_ratio
from loadtest.claims.spread import Spread
from loadtest.recording import Recording
from loadtest.simulated.worker import SimulatedJob, SimulatedSettings, simulate
from loadtest.statistics import percentile

BATCHES = (8, 16, 32)
TITLE = "Static ÷ continuous batching, simulated in equal steps; median (least to greatest) of five draws"
SEEDS = range(1, 6)
PAGE_SIZE = 16
MANY = 512
"""More sequences than ever fit into the memory that is compared."""


@dataclass(frozen=True, slots=True)
class ScheduleClaim:
    """One batch size and one cap."""

    batch: int
    cap: int
    ideal: float
    """Of ``same_batch``, by the lengths alone."""
    same_batch: Spread
    """Static's steps over continuous batching's, both with so many slots."""
    same_memory: Spread
    """The same with the KV memory in which static batching reserves ``batch`` rows for the longest output: as many
    sequences as pages allow."""
    sequences_that_fit: Spread
    """Running sequences in that memory, on average over the steps, over ``batch``."""
    tail: Spread
    """99th percentile of the time to the end, static over continuous, at the same batch."""
    busy_static: Spread
    busy_continuous: Spread
    """Share of slots that computed something."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """The same jobs, three ways."""

    static: Recording
    continuous: Recording
    paged: Recording

    @property
    def mean_running(self) -> float:
        steps = self.paged.steps.steps
        return sum(step.num_sequences for step in steps) / len(steps)


def schedule_claim(batch: int, cap: int, seeds: Sequence[int] = SEEDS, num_jobs: int = 1000) -> ScheduleClaim:
    runs = [_run(batch, cap, field_jobs(cap, seed, num_jobs)) for seed in seeds]

    def spread(value: Callable[[_Runs], float]) -> Spread:
        return Spread.of(map(value, runs))

    return ScheduleClaim(
        batch,
        cap,
        ideal=ideal_ratio(batch, cap),
        same_batch=spread(lambda run: run.static.duration_seconds / run.continuous.duration_seconds),
        same_memory=spread(lambda run: run.static.duration_seconds / run.paged.duration_seconds),
        sequences_that_fit=spread(lambda run: run.mean_running / batch),
        tail=spread(lambda run: _tail(run.static) / _tail(run.continuous)),
        busy_static=spread(lambda run: run.static.steps.slot_utilisation or 0.0),
        busy_continuous=spread(lambda run: run.continuous.steps.slot_utilisation or 0.0),
    )


def _run(batch: int, cap: int, jobs: Sequence[SimulatedJob]) -> _Runs:
    continuous = SchedulerConfig(max_num_seqs=batch, max_num_batched_tokens=2048, prefix_sharing=PrefixSharing.OFF)
    static = replace(continuous, batching=Batching.STATIC)
    paged = replace(continuous, max_num_seqs=MANY)
    pages_per_row = -(-(NUM_PROMPT_TOKENS + cap) // PAGE_SIZE)
    # Watermarks hold some pages back from admission, which must not cost continuous batching a slot.
    enough = 2 * batch * pages_per_row
    return _Runs(
        static=_simulate(static, enough, jobs),
        continuous=_simulate(continuous, enough, jobs),
        paged=_simulate(paged, batch * pages_per_row, jobs),
    )


def _simulate(scheduler: SchedulerConfig, num_pages: int, jobs: Sequence[SimulatedJob]) -> Recording:
    return simulate(jobs, SimulatedSettings(num_pages, PAGE_SIZE, scheduler=scheduler))


def _tail(recording: Recording) -> float:
    return percentile(sorted(line.e2e_seconds or 0.0 for line in recording.timelines), 99)


def to_markdown(claims: Iterable[ScheduleClaim]) -> str:
    head = (
        "| batch | cap | ideal | same batch | same KV memory | sequences that fit ÷ reserved | p99 to the end "
        " | busy slots, static | continuous |\n|---|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(map(_line, claims)) + "\n"


def _line(claim: ScheduleClaim) -> str:
    ratios = (claim.same_batch, claim.same_memory, claim.sequences_that_fit, claim.tail)
    shares = (claim.busy_static, claim.busy_continuous)
    cells = [str(claim.batch), f"{claim.cap:,}", f"{claim.ideal:.2f}"]
    cells += [ratio.to_text() for ratio in ratios]
    cells += [f"{share.median:.0%}" for share in shares]
    return f"| {' | '.join(cells)} |"


def all_claims(num_jobs: int) -> Iterator[ScheduleClaim]:
    for batch in BATCHES:
        for cap in CAPS:
            yield schedule_claim(batch, cap, num_jobs=num_jobs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.claims.schedules", description=__doc__.partition("\n")[0])
    parser.add_argument("--num-jobs", type=int, default=1000, help="jobs of each simulation (1000)")
    claims = list(all_claims(parser.parse_args(arguments).num_jobs))
    print(to_markdown(claims), file=sys.stderr)
    report = {"title": TITLE, "table": to_markdown(claims), "claims": [asdict(claim) for claim in claims]}
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
