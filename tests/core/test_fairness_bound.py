"""How far the services of two tenants can drift apart: the bound that `headway.core.fairness` derives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.job import JobKey
from headway.core.queue import JobQueue, QueueConfig, QueuedJob, QueuePolicy, WorkerRoom

ROOM = WorkerRoom("w", num_pages=1000, page_size=16, num_pages_total=1000)
NUM_SLOTS = 3
WEIGHTS = {"a": 1.0, "b": 1.0, "c": 3.0}
CONFIG = QueueConfig(
    policy=QueuePolicy.WEIGHTED_FAIR, tenant_weights=WEIGHTS, input_token_weight=1.0, output_token_weight=2.0
)


@dataclass(frozen=True)
class Burst:
    """Equal jobs that one tenant sends at once."""

    tenant: str
    num_steps_before: int
    num_jobs: int
    num_prompt_tokens: int
    num_output_tokens: int
    handed_back_at: int
    """Output tokens at which the worker gives each of the jobs back, once."""


BURSTS = st.lists(
    st.builds(
        Burst,
        st.sampled_from("abc"),
        st.integers(0, 60),
        st.integers(1, 25),
        st.integers(1, 40),
        st.integers(1, 15),
        st.integers(0, 15),
    ),
    min_size=2,
    max_size=8,
)


@dataclass(frozen=True)
class Setup:
    num_prefetched: int
    cached_share: float
    """Of each prompt, found in shared pages when the job starts."""

    @property
    def num_granted(self) -> int:
        return NUM_SLOTS + self.num_prefetched

    def num_cached(self, num_prompt_tokens: int) -> int:
        return int(self.cached_share * num_prompt_tokens)

    def bound(self, tenant: str, bursts: list[Burst]) -> float:
        """U of the docstring: the prompt granted last, what the granted can still generate, and what is refunded."""
        own = [burst for burst in bursts if burst.tenant == tenant]
        num_prompt = max((burst.num_prompt_tokens for burst in own), default=0)
        num_output = max((burst.num_output_tokens for burst in own), default=0)
        refund = max(self.num_cached(burst.num_prompt_tokens) / WEIGHTS[burst.tenant] for burst in bursts)
        return (num_prompt + 2 * self.num_granted * num_output) / WEIGHTS[tenant] + self.num_granted * refund


@dataclass
class Fleet:
    """Sequences that generate one token each per step; ``service`` is counted here and not read from the queue."""

    setup: Setup
    queue: JobQueue = field(default_factory=lambda: JobQueue(CONFIG))
    service: Counter[str] = field(default_factory=Counter)
    granted: list[QueuedJob] = field(default_factory=list)
    handed_back_at: dict[QueuedJob, int] = field(default_factory=dict)

    @property
    def active(self) -> set[str]:
        return set(self.queue.stats(0.0).num_waiting_by_tenant)

    def submit(self, burst: Burst) -> None:
        for _ in range(burst.num_jobs):
            number = len(self.handed_back_at)
            key = JobKey(burst.tenant, f"a{number}")
            job = QueuedJob(key, number, float(number), burst.num_prompt_tokens, burst.num_output_tokens)
            self.handed_back_at[job] = burst.handed_back_at
            self.queue.add(job, 0.0)

    def step(self) -> set[str]:
        """The tenants that had a waiting job all the time."""
        before = self.active
        while len(self.granted) < self.setup.num_granted and (job := self.queue.take(0.0, ROOM)):
            self.granted.append(job)
            if job.num_grants == 1:
                self.service[job.key.tenant] += job.num_prompt_tokens
        after = self.active
        for job in self.granted[:NUM_SLOTS]:
            self._generate(job)
        return before & after

    def _generate(self, job: QueuedJob) -> None:
        num_cached, num_output = self.setup.num_cached(job.num_prompt_tokens), job.num_output_tokens + 1
        self.service[job.key.tenant] += 2 - (num_cached if num_output == 1 else 0)
        self.queue.report(job, job.num_prompt_tokens, num_cached, num_output)
        if num_output == job.max_tokens:
            self.granted.remove(job)
            self.queue.settle(job, num_output)
        elif num_output == self.handed_back_at[job]:
            self.granted.remove(job)
            self.queue.add(job, 0.0)


class Drift:
    """Watches |W_f / s_f - W_g / s_g| over every time in which f and g both stay active."""

    def __init__(self, fleet: Fleet, bounds: dict[str, float]) -> None:
        self._fleet = fleet
        self._bounds = bounds
        self._seen: dict[tuple[str, str], list[float]] = {}

    def check(self, active: set[str]) -> None:
        for pair in combinations(WEIGHTS, 2):
            if set(pair) <= active:
                self._check(*pair)
            else:
                self._seen.pop(pair, None)

    def _check(self, first: str, second: str) -> None:
        counters, service = self._fleet.queue.counters(), self._fleet.service
        assert abs(counters[first] - counters[second]) <= max(self._bounds.values()) + 1e-6
        seen = self._seen.setdefault((first, second), [])
        seen.append(service[first] / WEIGHTS[first] - service[second] / WEIGHTS[second])
        assert max(seen) - min(seen) <= self._bounds[first] + self._bounds[second] + 1e-6


@pytest.mark.parametrize(
    "setup", [Setup(num_prefetched=0, cached_share=0.0), Setup(num_prefetched=2, cached_share=0.5)], ids=str
)
@given(bursts=BURSTS)
def test_the_services_of_waiting_tenants_drift_apart_no_further_than_the_bound(
    setup: Setup, bursts: list[Burst]
) -> None:
    fleet = Fleet(setup)
    drift = Drift(fleet, {tenant: setup.bound(tenant, bursts) for tenant in WEIGHTS})
    for burst in bursts:
        for _ in range(burst.num_steps_before):
            drift.check(fleet.step())
        fleet.submit(burst)
    while len(fleet.queue) or fleet.granted:
        drift.check(fleet.step())
    assert all(job.num_output_tokens == job.max_tokens for job in fleet.handed_back_at)
