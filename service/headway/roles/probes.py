"""What a process's three health probes answer, drawn from named conditions.

A role says which conditions hold; readiness is all of them, with the first that does not as its reason. Liveness is
not tied to NATS or to the other processes: a restart would not bring those back.
"""

from __future__ import annotations

from headway.lease.health import HealthServer, Probe


class Probes:
    """Conditions may be set at any time in the event loop."""

    def __init__(self, health: HealthServer, *conditions: str) -> None:
        """``conditions`` must all hold for readiness; none does at first."""
        self._health = health
        self._failing = dict.fromkeys(conditions, "not yet")

    def met(self, condition: str) -> None:
        """The first time that all hold, the process has started."""
        self._failing.pop(condition, None)
        if not self._failing:
            self._health.set(Probe.STARTUP, True, "started")
        self._answer()

    def failing(self, condition: str, reason: str) -> None:
        self._failing[condition] = reason
        self._answer()

    def dead(self, reason: str | None) -> None:
        """Beyond help (None: no more): the process should be killed and started anew."""
        self._health.set(Probe.LIVENESS, reason is None, reason or "running")

    def _answer(self) -> None:
        reasons = "; ".join(f"{condition}: {reason}" for condition, reason in self._failing.items())
        if not self._health.is_ok(Probe.STARTUP):
            self._health.set(Probe.STARTUP, False, reasons)
        self._health.set(Probe.READINESS, not reasons, reasons or "ready")
