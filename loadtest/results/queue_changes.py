"""`headway bench compare` of two files of ``--target queue``: rates, times and bytes of the queue under load.

Such a file holds one run, so it has no spread, and whether a difference is noise cannot be told from two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from loadtest.results.changes import Change, Comparison
from loadtest.results.differences import differences_of_maps
from loadtest.results.figures import Better, Readings, Unit
from loadtest.results.queue_documents import Measured, QueueDocument

NOT_COMPARED = frozenset({"json_path"})
"""Of the options."""


@dataclass(frozen=True, slots=True)
class QueueFigure:
    """One number of such a file; ``key`` is its path."""

    key: str
    name: str
    unit: Unit
    better: Better


@dataclass(frozen=True, slots=True)
class _Column:
    path: str
    """Dotted."""
    name: str
    unit: Unit = Unit.SECONDS
    better: Better = Better.LOWER


CORE = (
    _Column("adds_per_s", "added/s", Unit.PER_SECOND, Better.HIGHER),
    _Column("grants_and_settlements_per_s", "granted and settled/s", Unit.PER_SECOND, Better.HIGHER),
    _Column("decision_seconds.p50", "decision, p50"),
    _Column("decision_seconds.p99", "decision, p99"),
)
INTAKE = (
    _Column("jobs_per_s", "jobs/s", Unit.PER_SECOND, Better.HIGHER),
    _Column("bytes_per_job_beyond_payload", "bytes/job beyond payload", Unit.COUNT),
)
SERVED = (
    _Column("ended_per_s", "ended/s", Unit.PER_SECOND, Better.HIGHER),
    _Column("settled_per_s", "settled/s", Unit.PER_SECOND, Better.HIGHER),
    _Column("grant_seconds.p50", "grant, p50"),
    _Column("grant_seconds.p99", "grant, p99"),
    _Column("alone_grant_seconds.p50", "grant to one that asks alone, p50"),
    _Column("decision_seconds.p99", "decision, p99"),
    _Column("queue_cpu_seconds_per_job", "queue CPU per job"),
)


def compare_queue_documents(before: QueueDocument, after: QueueDocument) -> Comparison:
    """Held against a limit are the rates."""
    old, new = figures(before), figures(after)
    changes = [Change(figure, _readings(old, figure), _readings(new, figure)) for figure in dict.fromkeys([*old, *new])]
    differences = [
        *differences_of_maps("option", before.options, after.options, NOT_COMPARED),
        *differences_of_maps("machine", before.machine, after.machine),
    ]
    headlines = [change.figure.key for change in changes if change.figure.better is Better.HIGHER]
    return Comparison(changes, differences, incomplete=(), headlines=headlines)


def figures(document: QueueDocument) -> dict[QueueFigure, float]:
    """All that were measured, in the order of the file."""
    return {
        figure: value
        for policy, sizes in document.policies.items()
        for size, measured in sizes.items()
        for figure, value in _of(measured, f"{policy}/{size}", f"{policy} {size}")
    }


def _of(measured: Measured, path: str, name: str) -> Iterator[tuple[QueueFigure, float]]:
    yield from _of_part(measured.core, CORE, f"{path}/core", f"{name}, core")
    yield from _of_part(measured.intake, INTAKE, f"{path}/intake", f"{name}, intake")
    for part, by_workers in (("serve", measured.serve), ("records", measured.records)):
        for number, served in by_workers.items():
            workers = "worker" if number == "1" else "workers"
            yield from _of_part(served, SERVED, f"{path}/{part}/{number}", f"{name}, {part}, {number} {workers}")


def _of_part(part: object, kinds: tuple[_Column, ...], path: str, name: str) -> Iterator[tuple[QueueFigure, float]]:
    for kind in kinds:
        first, _, rest = kind.path.partition(".")
        value = getattr(part, first, None)
        if value is not None:
            number = attrgetter(rest)(value) if rest else value
            yield QueueFigure(f"{path}/{kind.path}", f"{name}: {kind.name}", kind.unit, kind.better), number


def _readings(found: dict[QueueFigure, float], figure: QueueFigure) -> Readings | None:
    return Readings((float(found[figure]),)) if figure in found else None
