"""Keeps the number of metric series bounded, however many tenants there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

OTHER = "other"
"""The label that all further tenants share."""


class TenantLabels:
    """The first ``max_labels`` tenants keep their own label for the life of the process: series never change hands."""

    def __init__(self, max_labels: int) -> None:
        self._max_labels = max_labels
        self._own: set[str] = set()

    def label(self, tenant: str) -> str:
        if tenant not in self._own:
            if len(self._own) >= self._max_labels:
                return OTHER
            self._own.add(tenant)
        return tenant

    def sums(self, values: Mapping[str, float]) -> dict[str, float]:
        """Values per tenant → values per label."""
        sums: dict[str, float] = defaultdict(float)
        for tenant, value in values.items():
            sums[self.label(tenant)] += value
        return dict(sums)
