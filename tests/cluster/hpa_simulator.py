"""The HorizontalPodAutoscaler's published algorithm, on virtual time: how many replicas would it ask for?

    metric ─ratio, tolerance─▶ recommendation ─stabilisation windows─▶ ─policies─▶ ─min, max─▶ replicas

From the documentation of ``autoscaling/v2`` ("Algorithm details", "Configurable scaling behavior"). A tool of the tests
and of docs/autoscaling.py; nothing in Headway uses it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean
from typing import Any

TOLERANCE = 0.1


class Unit(Enum):
    PODS = "Pods"
    PERCENT = "Percent"


@dataclass(frozen=True)
class Policy:
    """At most ``value`` pods or percent of the pods in any ``period_seconds``."""

    unit: Unit
    value: int
    period_seconds: float


@dataclass(frozen=True)
class Rules:
    """Of one direction. Of several policies the one counts that allows the largest change (``selectPolicy: Max``)."""

    stabilization_seconds: float
    policies: tuple[Policy, ...]

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Rules:
        """As ``scaleUp`` and ``scaleDown`` are written."""
        assert written["selectPolicy"] == "Max"
        policies = [Policy(Unit(item["type"]), item["value"], item["periodSeconds"]) for item in written["policies"]]
        return cls(written["stabilizationWindowSeconds"], tuple(policies))


@dataclass(frozen=True)
class Behavior:
    up: Rules
    down: Rules

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Behavior:
        """As ``behavior`` of an ``autoscaling/v2`` HorizontalPodAutoscaler is written."""
        return cls(Rules.of(written["scaleUp"]), Rules.of(written["scaleDown"]))


@dataclass(frozen=True)
class Change:
    time: float
    num_pods: int
    """Added; negative: removed."""


@dataclass
class Hpa:
    """One HorizontalPodAutoscaler with one metric."""

    min_replicas: int
    max_replicas: int
    behavior: Behavior
    changes: list[Change] = field(default_factory=list)
    _recommendations: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, current: int, recommended: int) -> int:
        """The replicas to ask for now, given what the metric recommends."""
        stabilized = self._stabilize(now, current, recommended)
        desired = self._limit(now, current, stabilized)
        desired = max(self.min_replicas, min(self.max_replicas, desired))
        if desired != current:
            self.changes.append(Change(now, desired - current))
        return desired

    def _stabilize(self, now: float, current: int, recommended: int) -> int:
        """Up by the lowest, down by the highest recommendation of the direction's window, this one among them."""
        is_up = recommended >= current
        rules = self.behavior.up if is_up else self.behavior.down
        recent = [value for time, value in self._recommendations if time > now - rules.stabilization_seconds]
        longest = max(self.behavior.up.stabilization_seconds, self.behavior.down.stabilization_seconds)
        self._recommendations = [(time, value) for time, value in self._recommendations if time > now - longest]
        self._recommendations.append((now, recommended))
        return min([recommended, *recent]) if is_up else max([recommended, *recent])

    def _limit(self, now: float, current: int, desired: int) -> int:
        if desired > current:
            limits = [self._at_start(now, current, policy) + _step(policy, self._at_start(now, current, policy))
                      for policy in self.behavior.up.policies]  # fmt: skip
            return min(desired, max(current, *limits))
        if desired < current:
            limits = [self._at_start(now, current, policy) - _step(policy, self._at_start(now, current, policy))
                      for policy in self.behavior.down.policies]  # fmt: skip
            return max(desired, min(current, *limits))
        return current

    def _at_start(self, now: float, current: int, policy: Policy) -> int:
        """Replicas when the policy's period began."""
        return current - sum(change.num_pods for change in self.changes if change.time > now - policy.period_seconds)


def _step(policy: Policy, replicas: int) -> int:
    return policy.value if policy.unit is Unit.PODS else math.ceil(replicas * policy.value / 100)


def replicas_for_average(total: float, target: float, current: int) -> int:
    """An external metric with ``AverageValue``: the sum over the label selector, shared by the replicas."""
    if current and abs(total / (target * current) - 1.0) <= TOLERANCE:
        return current
    return math.ceil(total / target)


def replicas_for_pods(values: Sequence[float], num_pending: int, target: float, current: int) -> int:
    """A metric of pods. ``values``: of those that report one; pods that are not running yet count as 0 on the way up,
    and not at all on the way down."""
    if not values:
        return current
    ratio = fmean(values) / target
    if ratio <= 1.0 or not num_pending:
        return current if abs(ratio - 1.0) <= TOLERANCE else math.ceil(ratio * len(values))
    ratio = fmean([*values, *[0.0] * num_pending]) / target
    if ratio <= 1.0 + TOLERANCE:
        return current
    return max(current, math.ceil(ratio * (len(values) + num_pending)))


def num_reversals(changes: Iterable[Change], within_seconds: float) -> int:
    """Changes that take back the one before it soon after: flapping."""
    pairs = itertools.pairwise(changes)
    return sum(a.num_pods * b.num_pods < 0 and b.time - a.time < within_seconds for a, b in pairs)
