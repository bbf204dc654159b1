"""What a command line may change of a scenario."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from loadtest.workloads.arrivals import Arrivals
from loadtest.workloads.requests import WorkloadError
from loadtest.workloads.scenario_arrivals import AnyArrivals, Burst, Closed, Poisson, Ramp
from loadtest.workloads.scenario_files import NamedScenario


@dataclass(frozen=True, slots=True)
class Overrides:
    """None: as the scenario says."""

    num_requests: int | None = None
    seed: int | None = None
    arrivals: Arrivals | None = None
    """burst, poisson or closed."""
    rate: float | None = None
    load: float | None = None
    num_clients: int | None = None

    def apply(self, named: NamedScenario) -> NamedScenario:
        """Raises `WorkloadError` for what does not go together."""
        scenario = named.scenario
        changes: dict[str, Any] = {"arrivals": self._arrivals(scenario.arrivals)}
        changes |= {} if self.num_requests is None else {"num_requests": self.num_requests}
        changes |= {} if self.seed is None else {"seed": self.seed}
        return replace(named, scenario=scenario.model_copy(update=changes))

    def _arrivals(self, given: AnyArrivals) -> AnyArrivals:
        match self.arrivals:
            case Arrivals.BURST:
                return Burst()
            case Arrivals.POISSON:
                return Poisson(kind="poisson", rate=self.rate, load=self.load)
            case Arrivals.CLOSED:
                think_seconds = given.think_seconds if isinstance(given, Closed) else 0.0
                return Closed(kind="closed", clients=self.num_clients or 1, think_seconds=think_seconds)
        return self._with_other_numbers(given)

    def _with_other_numbers(self, given: AnyArrivals) -> AnyArrivals:
        """The same kind."""
        if self.num_clients is not None:
            if not isinstance(given, Closed):
                raise WorkloadError("--concurrency is for a closed loop; add --arrivals closed")
            return given.model_copy(update={"clients": self.num_clients})
        if self.rate is None and self.load is None:
            return given
        if not isinstance(given, Poisson) or isinstance(given, Ramp):
            raise WorkloadError(f"arrivals are {given.kind}, which takes no --rate or --load; add --arrivals poisson")
        return given.model_copy(update={"rate": self.rate, "load": self.load})
