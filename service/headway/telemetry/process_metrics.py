"""What every process tells about itself: what keeps it from being ready, and what it takes of its machine.

A probe's answer is gone once the pod is; a series of it stays, so that somebody can see afterwards when a stream
refused, and for how long. The machine's side (``process_*``: CPU, memory, open files) is prometheus_client's own
collector of Linux' ``/proc``, hence in a scrape only and not in OTLP; elsewhere it is absent.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.metrics import Meter
from prometheus_client import CollectorRegistry
from prometheus_client.process_collector import ProcessCollector

from headway.telemetry.gauges import LatestValues, Point

ENGINE = "headway_engine"
"""Begins the names of the engine child's ``process_*``: it holds the model, and most of the memory."""
NO_PROCESS = "none"
"""Has no folder in ``/proc``, so the collector finds nothing and says nothing."""


class ProcessMetrics:
    """Of one role's process; the role sets conditions from its event loop."""

    def __init__(self, meter: Meter, registry: CollectorRegistry, role: str) -> None:
        self._registry = registry
        self._role = role
        self._holds: dict[str, bool] = {}
        self._latest = LatestValues(meter)
        self._latest.add_gauge("headway_ready", "Whether a condition of the process's readiness holds (1) or not (0)")
        ProcessCollector(registry=registry)

    def condition(self, name: str, holds: bool) -> None:
        """A condition of readiness, from now on."""
        self._holds[name] = holds
        labels = {"role": self._role}
        points = [Point("headway_ready", int(ok), {**labels, "condition": what}) for what, ok in self._holds.items()]
        self._latest.replace(points)

    def watch_engine(self, pid: Callable[[], int | None]) -> None:
        """The engine child too: whichever has the ``pid`` at a scrape; nothing while there is none. Call it once."""
        ProcessCollector(ENGINE, pid=lambda: pid() or NO_PROCESS, registry=self._registry)
