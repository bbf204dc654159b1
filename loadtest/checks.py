"""What a benchmark would otherwise only find after minutes."""

from __future__ import annotations

from headway.settings import Settings
from loadtest.errors import BenchInputError
from loadtest.options import BenchOptions
from loadtest.peers.catalogue import Opponent, Peer, Variant
from loadtest.results.files import check_all_writable
from loadtest.targets.systems import check_target
from loadtest.targets.target import Target
from loadtest.workloads.arrivals import Arrivals
from loadtest.workloads.drawing import DEFAULT_VOCAB_SIZE
from loadtest.workloads.workload import Workload


def check(options: BenchOptions, settings: Settings) -> None:
    """Raises ``HeadwayError``."""
    workload = options.draw_workload(DEFAULT_VOCAB_SIZE)
    if (options.target is Target.OPENAI) != (options.server is not None):
        raise BenchInputError("the target openai needs the address of a server, and only that target")
    for system in options.systems:
        _check_system(system, settings)
    for name, opponent in options.opponents.items():
        if opponent is options.target:
            raise BenchInputError(f"{options.target} cannot be compared with itself")
        if isinstance(opponent, Peer):
            _check_peer(name, workload)
    check_all_writable(options.json_path, options.html_path)


def _check_system(system: Opponent, settings: Settings) -> None:
    if isinstance(system, Peer):
        system.check()
    elif isinstance(system, Target):
        check_target(system)
    elif isinstance(system, Variant):
        check_target(system.target)
        settings.changed(dict(system.changes))


def _check_peer(name: str, workload: Workload) -> None:
    """What a peer's process is not told of."""
    remedy = "start its server and compare with NAME=URL"
    if workload.schedule.arrivals is Arrivals.CLOSED:
        raise BenchInputError(f"{name} takes no closed loop, which needs to hear of every end; {remedy}")
    if workload.has_cancels:
        raise BenchInputError(f"{name} takes no cancels; {remedy}")
