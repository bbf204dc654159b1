"""How many tokens a job will generate: a guess good enough to order and to size the backlog.

The client's own ``expected_tokens`` counts first. Otherwise the tenant's jobs so far are the guide, since the jobs
of one tenant resemble each other more than anything that could be read off a prompt cheaply. A wrong guess costs
order, never correctness: sjf bounds every wait, and weighted-fair charges what was really generated.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.queued_job import QueuedJob

MIN_GAIN = 0.05
"""Weight of the newest length once enough are known: the estimate follows about the last 20 jobs."""


class LengthPredictor:
    """Running mean of the output length per tenant, and over all tenants for those that are new."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, _RunningMean] = {}
        self._overall = _RunningMean()

    def learn(self, tenant: str, num_output_tokens: int) -> None:
        self._by_tenant.setdefault(tenant, _RunningMean()).add(num_output_tokens)
        self._overall.add(num_output_tokens)

    def predict(self, job: QueuedJob) -> int:
        """Output tokens, 1 to ``max_tokens``; ``max_tokens`` while nothing is known."""
        guess = job.expected_tokens
        if guess is None:
            mean = self._by_tenant.get(job.key.tenant, self._overall)
            guess = round(mean.value) if mean.num_values else job.max_tokens
        return max(1, min(guess, job.max_tokens))


@dataclass(slots=True)
class _RunningMean:
    """The plain mean of the first values, then an exponential one that forgets old values."""

    value: float = 0.0
    num_values: int = 0

    def add(self, value: float) -> None:
        self.num_values += 1
        self.value += (value - self.value) * max(1 / self.num_values, MIN_GAIN)
