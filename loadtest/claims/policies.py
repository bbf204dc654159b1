"""The queue's policies on one mixed trace: `python -m loadtest.claims.policies`.

Two tenants, 1,200 jobs. ``bulk`` hands in 400 long jobs at once and goes on with a few; ``chat`` sends short and medium
ones all the time, so that together they ask for somewhat more than one worker can do. The worker's steps cost what
they do on the machine of docs/engine.md, as a formula, so every policy meets the same worker.

*Unfairness* is how far apart the two tenants' service (weighted tokens) drifts while both have jobs waiting: the
largest difference over any such stretch of time. `headway.core.fairness` bounds it for weighted-fair.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field

from headway.core.batch import StepPlan
from headway.core.queue import JobQueue
from headway.core.queue_config import QueueConfig, QueuePolicy
from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from loadtest.claims.spread import Spread
from loadtest.recording import Recording
from loadtest.simulated.cost import StepCost
from loadtest.simulated.worker import SimulatedJob, SimulatedSettings, simulate
from loadtest.statistics import percentile

TITLE = (
    "The queue's policies on one mixed trace, simulated: seconds to the end (median, least and greatest of five draws)"
)
SEEDS = range(1, 6)
TENANTS = ("bulk", "chat")
MAX_NUM_SEQS = 16
COST = StepCost(
    fixed_seconds=0.018, prefill_token_seconds=0.0007, decode_seconds=0.0006, context_token_seconds=0.0000012
)
"""SmolLM2-135M on two cores, by the tables of docs/engine.md."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Of jobs: lengths are drawn evenly between bounds."""

    label: str
    tenant: str
    num_prompt_tokens: tuple[int, int]
    num_output_tokens: tuple[int, int]

    def draw(self, source: random.Random, due_at: float) -> SimulatedJob:
        prompt, output = source.randint(*self.num_prompt_tokens), source.randint(*self.num_output_tokens)
        return SimulatedJob(prompt, output, due_at, self.tenant, self.label)


SHORT = Kind("short", "chat", (16, 64), (8, 32))
MEDIUM = Kind("medium", "chat", (64, 256), (64, 128))
LONG = Kind("long", "bulk", (256, 1024), (256, 512))
POLICIES = {
    **{str(policy): QueueConfig(policy=policy) for policy in QueuePolicy},
    "sjf, aging rate 20": QueueConfig(policy=QueuePolicy.SJF, aging_rate=20.0),
}
"""What is compared. With an aging rate of 20 a long job of this trace is overtaken for about a minute at most."""
MOST_TOKENS = {"bulk": (1024, 512), "chat": (256, 128)}
"""Of prompt and of output, by tenant."""


def mixed_trace(seed: int) -> tuple[SimulatedJob, ...]:
    source = random.Random(seed)
    jobs = [LONG.draw(source, 0.0) for _ in range(400)]
    now = 0.0
    for _ in range(800):
        now += source.expovariate(1.0)
        jobs.append((SHORT if source.random() < 0.8 else MEDIUM).draw(source, now))
    return tuple(sorted(jobs, key=lambda job: job.due_at))


@dataclass(slots=True)
class ServiceWatch:
    """Follows what each tenant was given while both had jobs waiting."""

    tenant_of: Callable[[int], str]
    config: QueueConfig
    service: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0.0))
    unfairness: float = 0.0
    _least: float | None = None
    """Of the differences in this stretch of time; None outside of one."""
    _most: float = 0.0

    def __call__(self, now: float, plan: StepPlan, queue: JobQueue) -> None:
        for chunk in plan.chunks:
            prompt = chunk.num_tokens if chunk.is_prefill else 0
            tenant = self.tenant_of(chunk.sequence.number)
            self.service[tenant] += self.config.work(prompt, int(chunk.is_sampled))
        waiting = queue.stats(now).num_waiting_by_tenant
        if not all(waiting.get(tenant) for tenant in TENANTS):
            self._least = None
            return
        difference = self.service[TENANTS[0]] - self.service[TENANTS[1]]
        if self._least is None:
            self._least = self._most = difference
        self._least, self._most = min(self._least, difference), max(self._most, difference)
        self.unfairness = max(self.unfairness, self._most - self._least)


def unfairness_bound(config: QueueConfig) -> float:
    """U_bulk + U_chat of `headway.core.fairness` (weights 1, nothing cached), with all granted prompts instead of
    one: service is counted here when it is computed, there when the job is granted."""
    return sum(config.work(MAX_NUM_SEQS * prompt, MAX_NUM_SEQS * output) for prompt, output in MOST_TOKENS.values())


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """Of one kind of job, in seconds from its arrival to its end."""

    mean: Spread
    p99: Spread


@dataclass(frozen=True, slots=True)
class PolicyClaim:
    policy: str
    classes: dict[str, ClassFigures]
    mean: Spread
    """Of all jobs."""
    longest_wait: Spread
    """For a first token, in seconds."""
    makespan: Spread
    """Seconds from the first arrival to the last end."""
    unfairness: Spread
    """Weighted tokens."""
    bound: float


@dataclass(frozen=True, slots=True)
class _Run:
    jobs: tuple[SimulatedJob, ...]
    recording: Recording
    unfairness: float

    def ends(self, label: str | None = None) -> list[float]:
        """Seconds to the end of each job of a kind, in ascending order."""
        lines = zip(self.jobs, self.recording.timelines, strict=True)
        return sorted(_known(line.e2e_seconds) for job, line in lines if label in (None, job.label))

    @property
    def longest_wait(self) -> float:
        return max(_known(line.ttft_seconds) for line in self.recording.timelines)


def policy_claim(name: str, config: QueueConfig, seeds: Iterable[int] = SEEDS) -> PolicyClaim:
    runs = [_run(config, mixed_trace(seed)) for seed in seeds]
    return PolicyClaim(
        name,
        classes={
            kind.label: ClassFigures(
                Spread.of(_mean(run.ends(kind.label)) for run in runs),
                Spread.of(percentile(run.ends(kind.label), 99) for run in runs),
            )
            for kind in (SHORT, MEDIUM, LONG)
        },
        mean=Spread.of(_mean(run.ends()) for run in runs),
        longest_wait=Spread.of(run.longest_wait for run in runs),
        makespan=Spread.of(run.recording.duration_seconds for run in runs),
        unfairness=Spread.of(run.unfairness for run in runs),
        bound=unfairness_bound(config),
    )


def _run(config: QueueConfig, jobs: tuple[SimulatedJob, ...]) -> _Run:
    scheduler = SchedulerConfig(max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=512, prefix_sharing=PrefixSharing.OFF)
    watch = ServiceWatch(lambda number: jobs[number].tenant, config)
    settings = SimulatedSettings(num_pages=4096, scheduler=scheduler, queue=config, cost=COST)
    return _Run(jobs, simulate(jobs, settings, watch), watch.unfairness)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _known(seconds: float | None) -> float:
    assert seconds is not None, "a simulated job did not end"
    return seconds


def to_markdown(claims: Iterable[PolicyClaim]) -> str:
    kinds = " | ".join(f"{kind.label}: mean / p99" for kind in (SHORT, MEDIUM, LONG))
    head = (
        f"| policy | {kinds} | all: mean | longest wait | all done after | unfairness, weighted tokens |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(map(_line, claims)) + "\n"


def _line(claim: PolicyClaim) -> str:
    cells = [str(claim.policy)]
    cells += [f"{one.mean.to_text('.0f')} / {one.p99.to_text('.0f')} s" for one in claim.classes.values()]
    cells += [f"{one.to_text('.0f')} s" for one in (claim.mean, claim.longest_wait, claim.makespan)]
    bound = f", bound {claim.bound:,.0f}" if claim.policy == QueuePolicy.WEIGHTED_FAIR else ""
    cells.append(claim.unfairness.to_text(",.0f") + bound)
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(
        prog="python -m loadtest.claims.policies", description=(__doc__ or "").partition("\n")[0]
    ).parse_args(arguments)
    claims = [policy_claim(name, config) for name, config in POLICIES.items()]
    print(to_markdown(claims), file=sys.stderr)
    report = {"title": TITLE, "table": to_markdown(claims), "claims": [asdict(claim) for claim in claims]}
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
