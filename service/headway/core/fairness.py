"""Weighted fairness between tenants: virtual token counters.

After Sheng et al., "Fairness in Serving Large Language Models" (OSDI '24), whose scheduler is called VTC. Each tenant
has a counter of the service that it received, in weighted tokens divided by its weight. The tenant with the least
counter is served next; its own order (`FifoRanking`) chooses which of its jobs. A tenant is *active* while it has a
waiting job. One that becomes active is lifted to the least active counter, or, if nobody is active, to the counter of
the tenant that was so last: being idle earns no credit.

A job is charged w_in · (prompt - cached) + w_out · output tokens. The whole prompt is charged at the grant (what is
cached is not known before), corrected by the first report; output is charged as a high-water mark. What a job was
charged is kept with the job, so another attempt charges only what goes beyond.

**Bound.** Let tenant k have weight s_k, prompts of at most L tokens, and let G_k be the most output tokens that its
jobs granted at one time can still generate. Let E be the most that reports can still correct on the prompts granted
(cached tokens refunded to others, k's own estimates put right), divided by the weights; it is 0 where prompts are
token ids and nothing is shared. Write U_k = (w_in · L + w_out · G_k) / s_k + E and U for the largest of them. Then

1.  two active tenants' counters never differ by more than U, and
2.  in any time in which f and g both stay active, their services W satisfy |W_f / s_f - W_g / s_g| ≤ U_f + U_g ≤ 2 U.

Proof. (a) But for refunds the least active counter never falls: charges raise it, who joins is lifted to it, and who
leaves cannot lower it; while nobody is active, the last one to leave stands for it. (b) Take an active i, and its last
grant, or the lift since then. At that moment no active counter was lower, and the least has fallen by no more than the
refunds since. After it i was charged that prompt, what its granted jobs generated and its own corrections: U_i in all.
That is 1. While a tenant stays active nothing lifts it, so its service is the difference of its counter between the
two ends of the time, which gives 2.

The paper's U is max(w_in · L, w_out · M), M being the KV tokens of all workers: there each granted job has its memory
until its end, so G_k ≤ M. Here workers grow sequences page by page, so G_k is the sum of what is left of
``max_tokens`` over the jobs that run or are prefetched: at most M where everything granted fits until its end, plus
(workers · prefetch · max_tokens) for those that do not run yet. Weights divide U: of two tenants, the one of the lesser
weight sets it.

The bound supposes, as the paper does, that the least tenant's job fits. Each time that it is passed over for want of
pages adds at most the passing job's charge to a counter. After ``max_bypass`` times `core.reservations` keeps a worker
for it; what the other workers take until that one has room still adds to the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.ordered import FirstFit, Rank
from headway.core.policies import FifoRanking, JobOrder, Policy
from headway.core.queue_config import QueueConfig
from headway.core.queued_job import QueuedJob


@dataclass(slots=True, eq=False)
class _Active:
    """A tenant with waiting jobs, and where it stands among the others."""

    name: str
    rank: Rank
    """Its counter; of equal ones, who became active first."""
    num_tokens: float
    """What the smallest of its jobs needs, as it is known to the order of tenants."""
    jobs: JobOrder = field(default_factory=JobOrder)


class WeightedFair(Policy):
    """The tenant with the least counter first, then that tenant's own order."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._ranking = FifoRanking(config)
        self._counters: dict[str, float] = {}
        self._active: dict[str, _Active] = {}
        self._tenants: FirstFit[_Active] = FirstFit()
        self._num_joins = 0
        self._last_active: str | None = None

    def add(self, job: QueuedJob) -> None:
        if job.rank is None:
            job.rank = self._ranking.rank(job)
        tenant = self._active.get(job.key.tenant) or self._join(job.key.tenant)
        tenant.jobs.add(job)
        self._follow(tenant)

    def remove(self, job: QueuedJob) -> None:
        tenant = self._active[job.key.tenant]
        tenant.jobs.remove(job)
        if len(tenant.jobs):
            self._follow(tenant)
        else:
            self._leave(tenant)

    def hide(self, job: QueuedJob, hidden: bool) -> None:
        tenant = self._active[job.key.tenant]
        tenant.jobs.hide(job, hidden)
        self._follow(tenant)

    def first(self, max_tokens: float) -> QueuedJob | None:
        tenant = self._tenants.first(max_tokens)
        return None if tenant is None else tenant.jobs.first(max_tokens)

    def charge(self, tenant: str, work: float) -> None:
        self._counters[tenant] = self._counters.get(tenant, 0.0) + work / self._config.weight(tenant)
        active = self._active.get(tenant)
        if active is not None:
            self._tenants.discard(active.rank)
            self._enter(active)

    def counters(self) -> dict[str, float]:
        """Those that matter to a tenant's next join: one below the least would be lifted to it anyway."""
        least = self._least
        return {name: value for name, value in self._counters.items() if value >= least}

    def restore(self, counters: Mapping[str, float]) -> None:
        self._counters = dict(counters)
        self._last_active = min(counters, key=lambda name: counters[name], default=None)

    @property
    def _least(self) -> float:
        """The least counter of the active; while there are none, that of the tenant that was so last."""
        first = self._tenants.first()
        if first is not None:
            return first.rank.score
        return 0.0 if self._last_active is None else self._counters[self._last_active]

    def _join(self, name: str) -> _Active:
        self._counters[name] = max(self._counters.get(name, 0.0), self._least)
        self._num_joins += 1
        tenant = _Active(name, Rank(self._counters[name], self._num_joins), 0.0)
        self._active[name] = tenant
        self._enter(tenant)
        return tenant

    def _leave(self, tenant: _Active) -> None:
        self._tenants.discard(tenant.rank)
        del self._active[tenant.name]
        self._last_active = tenant.name

    def _enter(self, tenant: _Active) -> None:
        """Puts the tenant into the order of tenants, where its counter says."""
        tenant.rank = Rank(self._counters[tenant.name], tenant.rank.sequence)
        tenant.num_tokens = tenant.jobs.least_tokens
        self._tenants.insert(tenant.rank, tenant.num_tokens, tenant)

    def _follow(self, tenant: _Active) -> None:
        """Tells the order of tenants what the smallest job of this one needs now."""
        if tenant.jobs.least_tokens != tenant.num_tokens:
            tenant.num_tokens = tenant.jobs.least_tokens
            self._tenants.resize(tenant.rank, tenant.num_tokens)
