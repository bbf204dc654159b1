"""What an autoscaler may ask about a model, drawn from the leader's status.

What is not known is `MissingData`, never a number: an autoscaler keeps the workers that there are when it gets an
error, and acts on any number that it gets. The one thing that a leader may say without having seen a worker is how
many of them the jobs ask for: from what a worker held when it was last seen (the status remembers it, over restarts),
else from the operator's own word for it. Without that nothing would ever scale from zero.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headway.cluster.errors import MissingData
from headway.core.status import ModelStatus, QueueStatus

AskStatus = Callable[[], Awaitable[QueueStatus]]
"""The leader's status, wherever the leader is. Raises `HeadwayError` while nobody can say."""


class Metric(StrEnum):
    """The names are those of Prometheus (`telemetry.queue_metrics`)."""

    WAITING_JOBS = "headway_waiting_jobs"
    OUTSTANDING_JOBS = "headway_outstanding_jobs"
    """Waiting and leased."""
    BACKLOG_TOKENS = "headway_backlog_tokens"
    WORKERS_NEEDED = "headway_workers_needed"
    """Carries over between kinds of GPU, since it is counted in workers and not in jobs."""


@dataclass(frozen=True, slots=True)
class ModelValue:
    model: str
    value: float


class Figures:
    """Answers for every model that the queue serves."""

    def __init__(self, ask_status: AskStatus, jobs_per_worker: Mapping[str, int]) -> None:
        self._ask_status = ask_status
        self._jobs_per_worker = jobs_per_worker

    async def values(self, metric: Metric, is_wanted: Callable[[str], bool]) -> list[ModelValue]:
        """One per model that ``is_wanted``, all of them known. Raises `HeadwayError` if one is not."""
        models = (await self._ask_status()).models
        wanted = [model for model in models if is_wanted(model.model)]
        return [ModelValue(model.model, self._value(metric, model)) for model in wanted]

    async def value(self, metric: Metric, model: str) -> float:
        """Raises `MissingData` for a model that the queue does not serve, too."""
        values = await self.values(metric, lambda name: name == model)
        if not values:
            raise MissingData(f"the queue serves no model {model!r}")
        return values[0].value

    def _value(self, metric: Metric, model: ModelStatus) -> float:
        match metric:
            case Metric.WAITING_JOBS:
                return model.num_waiting_jobs
            case Metric.OUTSTANDING_JOBS:
                return model.num_outstanding_jobs
            case Metric.BACKLOG_TOKENS:
                return model.queue.num_backlog_tokens
            case Metric.WORKERS_NEEDED:
                return workers_needed(model, self._jobs_per_worker.get(model.model))


def workers_needed(model: ModelStatus, jobs_per_worker: int | None) -> float:
    """``jobs_per_worker``: what the operator believes, for as long as no worker was ever seen."""
    if model.workers_needed is not None:
        return model.workers_needed
    if model.num_outstanding_jobs == 0:
        return 0.0
    if jobs_per_worker is not None:
        return model.num_outstanding_jobs / jobs_per_worker
    raise MissingData(
        f"no worker of {model.model!r} was ever seen, so it is not known what one can hold; "
        "set jobs_per_worker for it, or scale from zero on another metric"
    )
