"""What one benchmark asks of every system: a scenario or a workload file, and what the command line changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.slo import Slo
from loadtest.workloads.arrivals import Schedule
from loadtest.workloads.drawing import draw_requests
from loadtest.workloads.requests import Request, load_workload
from loadtest.workloads.scenario_files import NamedScenario


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    requests: tuple[Request, ...]
    schedule: Schedule
    scenario: str | None = None
    """Its name."""
    seed: int | None = None
    slo: Slo | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of tenants."""
    shares_prefixes: bool = False

    @property
    def longest(self) -> int:
        """Tokens of its longest request, prompt and output."""
        return max(len(request.prompt_token_ids) + request.num_output_tokens for request in self.requests)

    @property
    def has_cancels(self) -> bool:
        return any(request.cancel_after_seconds is not None for request in self.requests)


def workload_of_file(path: Path, schedule: Schedule, slo: Slo | None = None) -> Workload:
    """Raises `WorkloadError`."""
    return Workload(path.name, load_workload(path), schedule, slo=slo)


def workload_of_scenario(named: NamedScenario, schedule: Schedule | None, slo: Slo | None, vocab_size: int) -> Workload:
    """``schedule`` and ``slo`` take the place of the scenario's own. Raises `WorkloadError`."""
    scenario = named.scenario
    promise = None if scenario.slo is None else scenario.slo.slo
    return Workload(
        name=named.name,
        requests=draw_requests(named, vocab_size),
        schedule=schedule or scenario.arrivals.schedule,
        scenario=named.name,
        seed=scenario.seed,
        slo=slo or promise,
        weights=scenario.weights,
        shares_prefixes=scenario.shares_prefixes,
    )
