"""What was run, and where, as tables with a column for each file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loadtest.page.names import printable, readable
from loadtest.page.table import ABSENT, Table, names_in
from loadtest.results.documents import Document, FloorFigures
from loadtest.workloads.arrivals import grown


def what_was_run(documents: Mapping[str, Document]) -> Table:
    return _beside("What was run", {file: dict(_facts(document)) for file, document in documents.items()})


def settings(documents: Mapping[str, Document]) -> Table:
    found = {
        file: {name: text(value) for name, value in document.settings.items()} for file, document in documents.items()
    }
    return _beside("Settings", found)


def _beside(title: str, facts: Mapping[str, Mapping[str, str]]) -> Table:
    """A column for each file; what none of them says is left out."""
    rows = tuple(
        (readable(name), *(found.get(name, ABSENT) for found in facts.values())) for name in names_in(facts.values())
    )
    return Table(title, ("", *map(readable, facts)), rows, is_text=True)


def _facts(document: Document) -> Iterator[tuple[str, str]]:
    """In the order of the page; those that the file has."""
    known = {
        "command": document.command,
        "scenario": document.scenario,
        "workload": None if document.workload == document.scenario else document.workload,
        "requests": document.num_requests,
        "arrivals": _arrivals(document),
        "seed": document.seed,
        "target": document.target,
        "target's facts": document.facts,
        "model": document.model,
        "batching": document.batching,
        "runs": len(document.runs),
        "stopped by": document.stopped_by,
        **_floor(document.floor or FloorFigures()),
        **{name.removeprefix("num_").replace("_", " "): value for name, value in _machine(document.machine)},
        **{f"peer {name}": _pairs(peer.facts) for name, peer in document.peers.items()},
    }
    yield from ((name, text(value)) for name, value in known.items() if value not in (None, "", [], {}))


def _floor(floor: FloorFigures) -> dict[str, str | None]:
    bandwidth, products = floor.read_bytes_per_s, floor.matrix_flops_per_s
    return {
        "read bandwidth": f"{bandwidth / 1e9:.1f} GB/s" if bandwidth else None,
        "matrix products": f"{products / 1e12:.2f} TFLOP/s" if products else None,
    }


def text(value: Any) -> str:
    """Of anything that JSON can hold."""
    if isinstance(value, Mapping):
        return _pairs(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return printable(str(value))


def _pairs(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{printable(name)} {text(value)}" for name, value in facts.items())


def _arrivals(document: Document) -> str:
    how = "" if document.arrivals is None else text(document.arrivals)
    if document.num_clients is not None:
        how += f", {document.num_clients} clients"
    elif document.load is not None:
        how += f", at {grown(document.load, document.growth, '{:.0%}')} of each system's capacity"
    elif document.rate is not None:
        how += f", {grown(document.rate, document.growth, '{:g}')} requests/s"
    how += "" if document.ramp_seconds is None else f" within {document.ramp_seconds:g} s"
    return how + (f"; {document.num_apart:,} requests at times of their own" if document.num_apart else "")


def _machine(machine: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in machine.items():
        if name == "memory_bytes" and isinstance(value, int):
            yield "memory", f"{value / 2**30:.1f} GiB"
        elif name == "load_average" and isinstance(value, float):
            yield name, f"{value:.2f}"
        else:
            yield name, value
