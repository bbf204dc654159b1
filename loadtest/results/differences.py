"""Whether two reports may be compared: what differs in what was run, and where.

The version of Headway is left out, for that is what is usually compared; so is the load average.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.results.documents import Document

WHAT_WAS_RUN = (
    "target",
    "workload",
    "scenario",
    "seed",
    "arrivals",
    "load",
    "num_clients",
    "growth",
    "ramp_seconds",
    "model",
    "batching",
    "num_requests",
)
NOT_COMPARED = frozenset({"load_average", "headway"})
"""Of the machine's facts."""


@dataclass(frozen=True, slots=True)
class Difference:
    what: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.what}: {_shown(self.before)} before, {_shown(self.after)} after"


def differences(before: Document, after: Document) -> list[Difference]:
    """Empty: the two are comparable."""
    return list(_differences(before, after))


def rate_of(document: Document) -> float | None:
    """What was asked for. With ``load`` the rate is a result: the machine's capacity decides it."""
    return None if document.load is not None else document.rate


def _differences(before: Document, after: Document) -> Iterator[Difference]:
    pairs = ((key, getattr(before, key), getattr(after, key)) for key in WHAT_WAS_RUN)
    yield from (Difference(*pair) for pair in pairs if pair[1] != pair[2])
    if rate_of(before) != rate_of(after):
        yield Difference("rate", rate_of(before), rate_of(after))
    yield from differences_of_maps("settings", before.settings, after.settings)
    yield from differences_of_maps("target", before.facts, after.facts)
    yield from differences_of_maps("machine", before.machine, after.machine)
    for name in before.peers.keys() & after.peers.keys():
        yield from differences_of_maps(f"peer {name}", before.peers[name].facts, after.peers[name].facts)


def differences_of_maps(
    what: str, before: Mapping[str, Any], after: Mapping[str, Any], without: Collection[str] = NOT_COMPARED
) -> Iterator[Difference]:
    """Key by key, ``without`` those."""
    for key in sorted(before.keys() | after.keys()):
        if key not in without and before.get(key) != after.get(key):
            yield Difference(f"{what}, {key}", before.get(key), after.get(key))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
