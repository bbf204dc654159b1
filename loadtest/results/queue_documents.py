"""The JSON of `headway bench --target queue` read back, checked and with names: for comparing two of them.

`loadtest.queue_load.bench` lists the keys. As in `documents`, what no reader uses is passed over, and what was not
measured is None or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loadtest.statistics import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFigures:
    adds_per_s: float | None = None
    grants_and_settlements_per_s: float | None = None
    decision_seconds: Summary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeFigures:
    jobs_per_s: float | None = None
    bytes_per_job_beyond_payload: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    ended_per_s: float | None = None
    settled_per_s: float | None = None
    grant_seconds: Summary | None = None
    alone_grant_seconds: Summary | None = None
    decision_seconds: Summary | None = None
    queue_cpu_seconds_per_job: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Under one policy with one number of waiting jobs; ``serve`` and ``records`` by number of workers."""

    core: CoreFigures | None = None
    intake: IntakeFigures | None = None
    serve: Mapping[str, ServedFigures] = field(default_factory=dict)
    records: Mapping[str, ServedFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDocument:
    """``policies`` by policy, then by number of waiting jobs."""

    target: Literal["queue"]
    policies: Mapping[str, Mapping[str, Measured]]
    options: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
