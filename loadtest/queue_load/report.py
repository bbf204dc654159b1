"""The report of a queue under load, for people: one table per part, a row per policy and number of waiting jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loadtest.queue_load.summaries import at
from loadtest.results.figures import rounded

CORE_COLUMNS = {
    "added/s": ("core/adds_per_s", 1.0),
    "granted and settled/s": ("core/grants_and_settlements_per_s", 1.0),
    "decision p50 µs": ("core/decision_seconds/p50", 1e6),
    "p99 µs": ("core/decision_seconds/p99", 1e6),
}
INTAKE_COLUMNS = {
    "jobs/s": ("intake/jobs_per_s", 1.0),
    "seconds": ("intake/seconds", 1.0),
    "bytes/job beyond payload": ("intake/bytes_per_job_beyond_payload", 1.0),
    "MB of payloads": ("intake/payload_bytes_held", 1e-6),
}
SERVE_COLUMNS = {
    "ended/s": ("ended_per_s", 1.0),
    "settled/s": ("settled_per_s", 1.0),
    "grant p50 ms": ("grant_seconds/p50", 1e3),
    "p99 ms": ("grant_seconds/p99", 1e3),
    "alone p50 ms": ("alone_grant_seconds/p50", 1e3),
    "decision p99 µs": ("decision_seconds/p99", 1e6),
    "queue CPU µs/job": ("queue_cpu_seconds_per_job", 1e6),
}

Columns = Mapping[str, tuple[str, float]]


def queue_report_text(report: Mapping[str, Any]) -> str:
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield f"{machine['cpu']}, {machine['num_cores']} cores, load average {machine['load_average']:.1f}"
    rows = [(policy, size, found) for policy, by_size in report["policies"].items() for size, found in by_size.items()]
    for title, part, columns in (("state machine", "core", CORE_COLUMNS), ("intake", "intake", INTAKE_COLUMNS)):
        if any(part in found for _, _, found in rows):
            yield from _table(title, columns, ((f"{policy} {int(size):,}", found) for policy, size, found in rows))
    for part in ("serve", "records"):
        served = [
            (f"{policy} {int(size):,}, {number} worker{'s' * (number != '1')}", found[part][number])
            for policy, size, found in rows
            for number in found.get(part, ())
        ]
        if served:
            yield from _table(part, SERVE_COLUMNS, served)
    yield from _growth(report["growth"])


def _table(title: str, columns: Columns, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield ""
    yield f"{title:34}" + "".join(f"{name:>{len(name) + 2}}" for name in columns)
    for name, found in rows:
        cells = (f"{_cell(at(found, path), scale):>{len(column) + 2}}" for column, (path, scale) in columns.items())
        yield f"{name:34}" + "".join(cells)


def _cell(value: float | None, scale: float) -> str:
    return "-" if value is None else rounded(value * scale)


def _growth(growth: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    if any(growth.values()):
        yield ""
        yield f"{'growth of costs':60}   ratio  exponent  of log n"
    for policy, figures in growth.items():
        for figure, grown in figures.items():
            yield f"{policy + ' ' + figure:60}{grown['ratio']:8.2f}{grown['exponent']:10.3f}{grown['of_log_n']:10.3f}"
