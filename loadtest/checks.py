"""What a benchmark would otherwise only find after minutes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from loadtest.errors import BenchError
from loadtest.options import BenchOptions
from loadtest.peers.catalogue import Opponent, Peer
from loadtest.targets.systems import check_target
from loadtest.targets.target import Target
from loadtest.workloads.arrivals import Arrivals
from loadtest.workloads.drawing import DEFAULT_VOCAB_SIZE
from loadtest.workloads.workload import Workload


def check(options: BenchOptions) -> None:
    """Raises ``HeadwayError``."""
    workload = options.draw_workload(DEFAULT_VOCAB_SIZE)
    if (options.target is Target.OPENAI) != (options.server is not None):
        raise BenchError("the target openai needs the address of a server, and only that target")
    for system in options.systems:
        _check_system(system)
    for name, opponent in options.opponents.items():
        if opponent is options.target:
            raise BenchError(f"{options.target} cannot be compared with itself")
        if isinstance(opponent, Peer):
            _check_peer(name, workload)
    if options.json_path is not None:
        _check_writable(options.json_path)


def _check_system(system: Opponent) -> None:
    if isinstance(system, Peer):
        system.check()
    elif isinstance(system, Target):
        check_target(system)


def _check_peer(name: str, workload: Workload) -> None:
    """What a peer's process is not told of."""
    remedy = "start its server and compare with NAME=URL"
    if workload.schedule.arrivals is Arrivals.CLOSED:
        raise BenchError(f"{name} takes no closed loop, which needs to hear of every end; {remedy}")
    if workload.has_cancels:
        raise BenchError(f"{name} takes no cancels; {remedy}")


def _check_writable(path: Path) -> None:
    """Raises `BenchError`; leaves nothing behind."""
    try:
        if path.exists():
            path.open("r+b").close()
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as exc:
        raise BenchError(f"the report cannot be written to {path}: {exc.strerror}") from exc
