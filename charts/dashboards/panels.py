"""What the Grafana dashboard shows: rows of panels, and what each of them asks of Prometheus.

Written as a description, so that a change of a panel is reviewed as one; `python -m charts.dashboards` makes Grafana's
JSON of it. Rates are over ``$__rate_interval``. A leader's numbers are read with ``max``: right after a takeover the
former leader's last sample is still there, and a sum would count every job twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PROCESS = 'namespace=~"$namespace",app_kubernetes_io_instance=~"$release"'
MODEL = f'{PROCESS},model=~"$model"'
TENANT = f'{MODEL},tenant=~"$tenant"'
QUANTILES = (0.5, 0.95, 0.99)
SLO_SECONDS = 60
"""Of the alerts on the queue's delay (files/alerts.yaml)."""
PER_SECOND = "[$__rate_interval]"


class Unit(StrEnum):
    """Grafana's names."""

    NUMBER = "short"
    SECONDS = "s"
    SHARE = "percentunit"
    PER_SECOND = "ops"
    BYTES = "bytes"


class Kind(StrEnum):
    LINES = "lines"
    STACK = "stack"
    """Areas on top of each other: parts of a whole."""
    NUMBER = "number"
    """The newest value, large."""


@dataclass(frozen=True, slots=True)
class Query:
    expression: str
    """PromQL."""
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: Unit
    queries: tuple[Query, ...]
    description: str
    kind: Kind = Kind.LINES


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def leader(metric: str, by: str = "model", where: str = MODEL) -> str:
    return f"max by ({by}) ({metric}{{{where}}})"


def workers(metric: str, by: str = "model", where: str = MODEL) -> str:
    return f"sum by ({by}) ({metric}{{{where}}})"


def rate(metric: str, by: str = "model", where: str = MODEL) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}{PER_SECOND}))"


def quantile(share: float, histogram: str, by: str = "model", where: str = MODEL) -> str:
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', f'{by}, le', where)})"


def quantiles(histogram: str, by: str = "model", where: str = MODEL) -> tuple[Query, ...]:
    names = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return tuple(Query(quantile(share, histogram, by, where), f"{names} {share:.0%}") for share in QUANTILES)


def of_process(metric: str) -> str:
    """``process_*`` is what every program calls it; our processes are those that say whether they are ready."""
    ours = f"max by (job, instance, pod, role) (headway_ready{{{PROCESS}}} >= bool 0)"
    return f"{metric} * on (job, instance) group_left (pod, role) {ours}"
