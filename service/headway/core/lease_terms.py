"""How jobs are leased to workers: the settings of `leases.Leases`."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.errors import SettingError


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Set on the queue; workers learn ``lease_seconds`` from the leader's welcome."""

    lease_seconds: float = 15.0
    """Seconds of silence, or without a stream, after which a worker loses its jobs to others."""
    grace_seconds: float = 5.0
    """Seconds that a new leader waits for the workers of its predecessor before it grants anything."""
    max_attempts: int = 3
    """Lost attempts (worker or engine died) after which a job is dead. Handing back does not count."""
    max_shared_attempts: int = 2
    """Lost attempts after which a job is granted only to a worker that runs nothing beside it."""
    recall_seconds: float = 1.0
    """Seconds after which a prefetched job that has not started is taken back for a worker with room."""

    def __post_init__(self) -> None:
        for name in ("lease_seconds", "grace_seconds", "recall_seconds"):
            if getattr(self, name) < 0:
                raise SettingError(name, getattr(self, name), "give seconds ≥ 0")
        for name in ("max_attempts", "max_shared_attempts"):
            if getattr(self, name) < 1:
                raise SettingError(name, getattr(self, name), "give a count ≥ 1")
