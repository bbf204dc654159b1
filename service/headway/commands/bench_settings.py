"""Which settings a benchmark uses: a flag that would change nothing is refused, since who gives it expects a change."""

from __future__ import annotations

from collections.abc import Iterable

import click

from headway.commands.flags import SettingFlags
from headway.settings import list_settings

ENGINE = frozenset({"engine", "scheduler"})
ALL = ENGINE | {"queue", "broker", "lease", "lease_terms", "roles", "telemetry"}
USED = {"engine": ENGINE, "static": ENGINE, "nats": ALL, "openai": frozenset(), "queue": ALL - ENGINE}
"""Groups of settings by target."""
USED_BY_ALL = frozenset({"tenant_weights"})
"""Also what the report divides each tenant's service by."""


def refuse_unused_flags(flags: SettingFlags, target: str, peers: Iterable[str]) -> None:
    """Those of the environment and of a file are for others too, and stay. Raises ``click.UsageError``."""
    groups = USED[target].union(*map(_used_by_peer, peers))
    for setting in list_settings():
        is_given = flags.given.get(setting.name) is not None
        if is_given and setting.group not in groups and setting.name not in USED_BY_ALL:
            raise click.UsageError(f"{setting.flag} changes nothing of --target {target}")
    if target == "queue" and flags.given.get("policy") is not None:
        raise click.UsageError("--policy is not for --target queue, which measures several; name them with --policies")


def _used_by_peer(name: str) -> frozenset[str]:
    """Peers of other makers load the engine's model; a server that is there already takes none of our settings."""
    if "://" in name:
        return frozenset()
    return USED.get(name.partition("+")[0], ENGINE)
