"""What a process's three health probes answer, drawn from named conditions.

A role says which conditions hold; readiness is all of them, with those that do not as its reason. Startup is only what
the process has to bring about by itself (a model that is loaded): whoever asks for it kills a process that takes too
long, which would bring neither NATS nor a leader, and cost the loading once more. Liveness is tied to nothing outside
either.

The log has a line for each change of readiness: who reads it has no probe at hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from headway.lease.health import HealthServer, Probe

log = logging.getLogger(__name__)


class Probes:
    """Conditions may be set at any time in the event loop."""

    def __init__(
        self,
        health: HealthServer,
        *conditions: str,
        startup: Collection[str] = (),
        on_condition: Callable[[str, bool], None] = lambda condition, holds: None,
    ) -> None:
        """``conditions`` must all hold for readiness; none does at first. Once those of ``startup`` have held, each at
        some time, the process has started. ``on_condition`` hears of every condition whether it holds, for metrics."""
        self._health = health
        self._on_condition = on_condition
        self._failing = dict.fromkeys(conditions, "not yet")
        self._starting = set(startup)
        self._was_ever_ready = False
        for condition in conditions:
            on_condition(condition, False)
        self._answer()

    def met(self, condition: str) -> None:
        self._on_condition(condition, True)
        self._failing.pop(condition, None)
        self._starting.discard(condition)
        self._answer()

    def failing(self, condition: str, reason: str) -> None:
        self._on_condition(condition, False)
        self._failing[condition] = reason
        self._answer()

    def dead(self, reason: str | None) -> None:
        """Beyond help (None: no more): the process should be killed and started anew."""
        self._health.set(Probe.LIVENESS, reason is None, reason or "running")

    def _answer(self) -> None:
        starting = self._reasons(self._starting)
        self._health.set(Probe.STARTUP, not starting, starting or "started")
        reasons = self._reasons(self._failing)
        self._log_change(reasons)
        self._health.set(Probe.READINESS, not reasons, reasons or "ready")

    def _log_change(self, reasons: str) -> None:
        was_ready = self._health.is_ok(Probe.READINESS)
        if reasons and was_ready:
            log.info("not ready any more: %s", reasons)
        elif not reasons and not was_ready:
            log.info("ready again" if self._was_ever_ready else "ready")
            self._was_ever_ready = True

    def _reasons(self, conditions: Collection[str]) -> str:
        return "; ".join(f"{condition}: {why}" for condition, why in self._failing.items() if condition in conditions)
