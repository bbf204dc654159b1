"""Starts whatever is measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from headway.settings import Settings
from loadtest.peers.catalogue import Opponent, Peer, Variant
from loadtest.peers.process import open_peer
from loadtest.progress import Watch
from loadtest.targets.openai_target import open_server
from loadtest.targets.server import Server
from loadtest.targets.systems import Say, System, open_target
from loadtest.targets.target import Target
from loadtest.workloads.requests import Request

WARM_UP = (Request(tuple(range(3, 19)), num_output_tokens=4, gap=0.0),) * 4
"""Enough for what is set up on first use: threads, allocations, the log's first writes."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What all systems are started with."""

    settings: Settings
    say: Say
    watch: Watch
    timeout_seconds: float
    model_source: str | None
    """Where the model's weights are; None: no system needs them."""
    longest: int
    """Tokens of the longest request, prompt and output."""

    def open_all(self, stack: ExitStack, chosen: Mapping[str, Opponent]) -> dict[str, System]:
        """By the same names, warmed up; ``stack`` closes them. Raises ``HeadwayError``."""
        systems: dict[str, System] = {}
        for name, system in chosen.items():
            if not isinstance(system, Server):
                self.say(f"starting {name}")
            systems[name] = stack.enter_context(self.open(system))
        for opened in systems.values():
            opened.run(WARM_UP, [0.0] * len(WARM_UP))
        return systems

    def open(self, system: Opponent) -> AbstractContextManager[System]:
        """Ready once entered, which raises ``HeadwayError``."""
        if isinstance(system, Server):
            return open_server(system, self.watch, self.timeout_seconds)
        if isinstance(system, Peer):
            assert self.model_source is not None
            return open_peer(system, self.model_source, self.settings.engine, self.longest)
        if isinstance(system, Variant):
            return self._open_target(system.target, self.settings.changed(dict(system.changes)))
        return self._open_target(system, self.settings)

    def _open_target(self, target: Target, settings: Settings) -> AbstractContextManager[System]:
        return open_target(target, settings, self.say, self.watch, self.timeout_seconds)


def with_weights(settings: Settings, weights: Mapping[str, float]) -> Settings:
    """With the weights that a scenario gives to tenants, unless the settings say otherwise."""
    queue = settings.queue
    return replace(settings, queue=replace(queue, tenant_weights={**weights, **queue.tenant_weights}))
