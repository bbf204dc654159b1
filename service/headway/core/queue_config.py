"""Settings of the queue of waiting jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from headway.core.errors import SettingError
from headway.core.job import MAX_PRIORITY, TOKEN

ANY_TENANT = "*"
"""Key of the tenants that are not listed by name; no tenant can be called so."""


class QueuePolicy(StrEnum):
    FIFO = "fifo"
    SJF = "sjf"
    WEIGHTED_FAIR = "weighted-fair"


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How waiting jobs are ordered.

    Raises ``SettingError`` naming the first setting that cannot hold.
    """

    policy: QueuePolicy = QueuePolicy.FIFO
    """Order of the waiting jobs: fifo, sjf (shortest predicted job first) or weighted-fair (between tenants)."""
    promote_seconds: float = 30.0
    """Waiting time that is worth one step of priority, in seconds (fifo, and within a tenant of weighted-fair)."""
    aging_rate: float = 2.0
    """Weighted tokens by which a job's predicted work shrinks per second of waiting (sjf). A job is never overtaken
    by one that came more than (its predicted work / aging rate) seconds after it."""
    tenant_weights: dict[str, float] = field(default_factory=dict)
    """Share of each tenant relative to the others (weighted-fair); "*" stands for tenants not listed, else 1."""
    tenant_max_priority: dict[str, int] = field(default_factory=dict)
    """Highest priority that counts for each tenant, 0 to 100; "*" stands for tenants not listed, else 100."""
    input_token_weight: float = 1.0
    """Cost of a prompt token (sjf and weighted-fair)."""
    output_token_weight: float = 2.0
    """Cost of an output token (sjf and weighted-fair)."""
    max_bypass: int = 32
    """How often smaller jobs may pass over a job that does not fit; then the next worker that could hold it, once
    empty, is reserved for it. 0 keeps strict order."""
    max_reserve_seconds: float = 120.0
    """Longest time for which a worker is reserved for one job, in seconds; more than the longest generation takes."""
    max_payload_bytes_held: int = 256 * 2**20
    """Bytes of waiting payloads kept in memory per model; those beyond are fetched from the stream when granted."""

    def __post_init__(self) -> None:
        for name in ("promote_seconds", "aging_rate", "max_reserve_seconds"):
            self._check(name, getattr(self, name), low=0.0, open_low=True)
        for name in ("input_token_weight", "output_token_weight", "max_bypass", "max_payload_bytes_held"):
            self._check(name, getattr(self, name), low=0.0)
        for tenant, weight in self.tenant_weights.items():
            _check_tenant("tenant_weights", tenant)
            self._check("tenant_weights", weight, low=0.0, open_low=True)
        for tenant, priority in self.tenant_max_priority.items():
            _check_tenant("tenant_max_priority", tenant)
            self._check("tenant_max_priority", priority, low=0.0)

    def weight(self, tenant: str) -> float:
        return _of_tenant(self.tenant_weights, tenant, 1.0)

    def priority(self, tenant: str, asked: int) -> int:
        """The priority that counts, of what a client of the tenant asked for."""
        return min(asked, _of_tenant(self.tenant_max_priority, tenant, MAX_PRIORITY))

    def work(self, num_input_tokens: int, num_output_tokens: int) -> float:
        """Cost in weighted tokens: the unit of predicted work, and of what tenants are charged."""
        return self.input_token_weight * num_input_tokens + self.output_token_weight * num_output_tokens

    @staticmethod
    def _check(name: str, value: float, low: float, open_low: bool = False) -> None:
        if not (math.isfinite(value) and (value > low if open_low else value >= low)):
            raise SettingError(name, value, f"must be a finite number {'>' if open_low else '≥'} {low:g}")


Value = TypeVar("Value", int, float)


def _of_tenant(values: Mapping[str, Value], tenant: str, default: Value) -> Value:
    return values.get(tenant, values.get(ANY_TENANT, default))


def _check_tenant(name: str, tenant: str) -> None:
    if tenant != ANY_TENANT and TOKEN.fullmatch(tenant) is None:
        raise SettingError(name, tenant, f"no tenant has such a name; it must match {TOKEN.pattern} or be {ANY_TENANT}")
