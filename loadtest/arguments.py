"""The command line of `headway bench`, read: names and numbers become what they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loadtest.options import BenchOptions
from loadtest.peers.catalogue import Opponent, parse_opponent
from loadtest.slo import parse_slo
from loadtest.targets.sending import DEFAULT_TIMEOUT_SECONDS
from loadtest.targets.server import Server
from loadtest.targets.target import Target
from loadtest.workloads.arrivals import DEFAULT_LOAD, Arrivals, Schedule
from loadtest.workloads.overrides import Overrides
from loadtest.workloads.requests import DEFAULT_WORKLOAD
from loadtest.workloads.scenario_files import NamedScenario, load_scenario


@dataclass(frozen=True, slots=True)
class Arguments:
    """As they were given; None: not given."""

    target: str = Target.ENGINE
    url: str | None = None
    served_model: str | None = None
    workload: Path | None = None
    scenario: str | None = None
    num_requests: int | None = None
    seed: int | None = None
    arrivals: str | None = None
    rate: float | None = None
    load: float | None = None
    concurrency: int | None = None
    slo: str | None = None
    timeout: float | None = None
    peers: tuple[str, ...] = ()
    runs: int | None = None
    json_path: Path | None = None
    html_path: Path | None = None


def options_of(arguments: Arguments) -> BenchOptions:
    """Raises ``HeadwayError`` for what nobody can read, and for what does not go together."""
    server = None if arguments.url is None else Server(arguments.url.rstrip("/"), arguments.served_model)
    return BenchOptions(
        target=Target(arguments.target),
        workload=arguments.workload or DEFAULT_WORKLOAD,
        scenario=_scenario(arguments),
        schedule=None if arguments.scenario else _schedule(arguments),
        slo=None if arguments.slo is None else parse_slo(arguments.slo),
        server=server,
        opponents=dict(_opponent(text) for text in arguments.peers),
        num_rounds=arguments.runs,
        timeout_seconds=arguments.timeout or DEFAULT_TIMEOUT_SECONDS,
        json_path=arguments.json_path,
        html_path=arguments.html_path,
    )


def _opponent(text: str) -> tuple[str, Opponent]:
    """Under the name that it is reported by."""
    opponent = parse_opponent(text)
    return (opponent.name if isinstance(opponent, Server) else text), opponent


def _scenario(arguments: Arguments) -> NamedScenario | None:
    if arguments.scenario is None:
        return None
    overrides = Overrides(
        num_requests=arguments.num_requests,
        seed=arguments.seed,
        arrivals=_arrivals(arguments),
        rate=arguments.rate,
        load=arguments.load,
        num_clients=arguments.concurrency,
    )
    return overrides.apply(load_scenario(arguments.scenario))


def _schedule(arguments: Arguments) -> Schedule:
    """Of a workload file, whose gaps are exponential."""
    return Schedule(
        _arrivals(arguments) or Arrivals.BURST,
        arguments.rate,
        arguments.load or DEFAULT_LOAD,
        num_clients=arguments.concurrency or 1,
    )


def _arrivals(arguments: Arguments) -> Arrivals | None:
    return None if arguments.arrivals is None else Arrivals(arguments.arrivals)
