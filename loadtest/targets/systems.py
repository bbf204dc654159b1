"""What can be measured, behind one interface: it is opened once, and then does the same work as often as it is asked.

Open systems stay idle between their runs, so that several of them can take turns on one machine: only what was
measured in turns can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from headway.broker.embedded import find_nats_server
from headway.core.scheduler_config import Batching
from headway.settings import Settings
from loadtest.progress import Watch, nobody
from loadtest.recording import Recording
from loadtest.targets.engine_child import open_engine
from loadtest.targets.nats_target import open_path
from loadtest.targets.sending import DEFAULT_TIMEOUT_SECONDS
from loadtest.targets.target import Target
from loadtest.workloads.plan import Plan
from loadtest.workloads.requests import Request

Say = Callable[[str], None]


class System(Protocol):
    def run(self, requests: Sequence[Request], plan: Plan) -> Recording:
        """Send each request as planned and return when all have ended. The recording has no steps where the system does
        not tell of any."""


def check_target(target: Target) -> None:
    """Raises ``EmbeddedNatsFailed`` if there is no server to start."""
    if target is Target.NATS:
        find_nats_server()


@contextmanager
def open_target(
    target: Target,
    settings: Settings,
    say: Say,
    watch: Watch = nobody,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Iterator[System]:
    """Headway itself, ready when this returns. Raises ``HeadwayError``."""
    if target is Target.NATS:
        with open_path(settings, say, watch, timeout_seconds) as path:
            yield path
        return
    scheduler = settings.scheduler
    if target is Target.STATIC:
        scheduler = replace(scheduler, batching=Batching.STATIC)
    with open_engine(settings.engine, scheduler, say, watch) as engine:
        yield engine
