"""What a benchmark is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.peers.catalogue import Opponent
from loadtest.slo import Slo
from loadtest.targets.sending import DEFAULT_TIMEOUT_SECONDS
from loadtest.targets.server import Server
from loadtest.targets.target import Target
from loadtest.turns import HEADWAY
from loadtest.workloads.arrivals import Schedule
from loadtest.workloads.requests import DEFAULT_WORKLOAD
from loadtest.workloads.scenario_files import NamedScenario
from loadtest.workloads.workload import Workload, workload_of_file, workload_of_scenario


@dataclass(frozen=True, slots=True)
class BenchOptions:
    target: Target = Target.ENGINE
    workload: Path = DEFAULT_WORKLOAD
    scenario: NamedScenario | None = None
    """In the place of the workload."""
    schedule: Schedule | None = None
    """None: the scenario's, or all at once."""
    slo: Slo | None = None
    """None: the scenario's, if it has one."""
    server: Server | None = None
    """For `Target.OPENAI`."""
    opponents: Mapping[str, Opponent] = field(default_factory=dict)
    """By the name under which they are reported."""
    num_rounds: int | None = None
    """None: one, or three with opponents."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """From when a request was due until it counts as lost, where it goes to a server."""
    command: str | None = None
    """How it was asked, for the report."""
    json_path: Path | None = None
    """Where the report shall go."""
    html_path: Path | None = None
    """Where it shall go as a page."""

    @property
    def systems(self) -> tuple[Opponent, ...]:
        """The target first."""
        return (self.server or self.target, *self.opponents.values())

    @property
    def title(self) -> str:
        """Of the target, for people."""
        return HEADWAY if self.server is None else self.server.name

    @property
    def needs_model(self) -> bool:
        """Whether anything is started that reads the model."""
        return not all(isinstance(system, Server) for system in self.systems)

    def draw_workload(self, vocab_size: int) -> Workload:
        """Raises `WorkloadError`."""
        if self.scenario is None:
            return workload_of_file(self.workload, self.schedule or Schedule(), self.slo)
        return workload_of_scenario(self.scenario, self.schedule, self.slo, vocab_size)

    @property
    def shares_prefixes(self) -> bool:
        """Whether prompts begin alike on purpose."""
        return self.scenario is not None and self.scenario.scenario.shares_prefixes
