"""Settings of the processes themselves: what the queue serves, and how a process begins and ends."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.errors import SettingError
from headway.core.job import TOKEN


@dataclass(frozen=True, slots=True)
class RolesConfig:
    """For `headway.roles`, which lies above the settings."""

    models: tuple[str, ...] = ("default",)
    """Served names of the models that the queue takes jobs for, with or without a worker; others are rejected."""
    worker_name: str | None = None
    """Name of this worker in logs, records and tables; the host's name (in Kubernetes: the pod's) if not given."""
    drain_seconds: float = 30.0
    """Seconds that a stopping worker goes on with the jobs that it has; then it hands them back."""
    progress_seconds: float = 0.5
    """Seconds between two reports of a worker to the queue (its heartbeat); much less than lease_seconds."""
    save_seconds: float = 3.0
    """Seconds between two snapshots of the fairness counters, which a new queue leader goes on from."""
    step_timeout_seconds: float = 300.0
    """Longest time for one step of the engine, in seconds; one that takes longer counts as a crash of the engine."""
    max_restart_seconds: float = 60.0
    """Longest pause in seconds before a crashed engine is started again; the pauses double from one second."""

    def __post_init__(self) -> None:
        _require(bool(self.models), "models", self.models, "name at least one model")
        for model in self.models:
            _require(TOKEN.fullmatch(model) is not None, "models", model, "must match [a-z0-9-]{1,63}")
        for name in ("progress_seconds", "save_seconds", "step_timeout_seconds", "max_restart_seconds"):
            _require(getattr(self, name) > 0, name, getattr(self, name), "must be > 0")
        _require(self.drain_seconds >= 0, "drain_seconds", self.drain_seconds, "must be ≥ 0")


def _require(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
