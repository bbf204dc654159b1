"""The tables of the page, as text: the figures of every system, the ratios, the tenants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from loadtest.page.names import printable, readable
from loadtest.page.subjects import Subject
from loadtest.page.table import ABSENT, Table, names_in
from loadtest.results.documents import Document, Goodput, RatioSpread, RequestRow, RunFigures
from loadtest.results.figures import LATENCIES, STATISTICS, THROUGHPUT, Readings, Unit
from loadtest.statistics import Summary, summarise
from loadtest.workloads.arrivals import grown

WAITS = {key: LATENCIES[key] for key in ("ttft_seconds", "e2e_seconds", "queue_seconds")}
"""What is told of a tenant, and of a part of a mix."""
OVERVIEW = (
    "",
    "completed",
    "cancelled",
    "failed",
    "lost",
    "output tokens/s",
    "slots used",
    "preemptions",
    "goodput",
    "CPU time",
    "errors",
)
"""Columns of the first table, of which those that say something are shown."""


def tables(subjects: Sequence[Subject], documents: Mapping[str, Document]) -> list[Table]:
    """Those that have rows."""
    found = [
        _overview(subjects),
        _latencies(subjects),
        _ratios(documents),
        _tenants(subjects),
        _labels(subjects),
    ]
    return [table for table in found if table.rows]


def _overview(subjects: Sequence[Subject]) -> Table:
    rows = tuple(_overview_row(subject) for subject in subjects)
    kept = [column for column in range(len(OVERVIEW)) if any(row[column] != ABSENT for row in rows)]
    return Table(
        "Figures",
        tuple(OVERVIEW[column] for column in kept),
        tuple(tuple(row[column] for column in kept) for row in rows),
        "Output tokens/s: the median of the runs, with the least and the greatest. All others: of the run with the"
        " median throughput.",
    )


def _overview_row(subject: Subject) -> tuple[str, ...]:
    run = subject.shown
    return (
        subject.name,
        f"{run.num_completed:,} of {run.num_requests:,}",
        _show(run.num_cancelled or None, Unit.COUNT),
        _show(run.num_failed, Unit.COUNT),
        _show(run.num_lost, Unit.COUNT),
        Readings(tuple(run.output_tokens_per_s for run in subject.runs)).show(THROUGHPUT.unit),
        _show(run.slot_utilisation, Unit.SHARE),
        _show(run.num_preemptions, Unit.COUNT),
        _goodput(run.goodput),
        _cpu_time(run),
        ", ".join(f"{number:,} × {printable(error)}" for error, number in run.errors.items()) or ABSENT,
    )


def _cpu_time(run: RunFigures) -> str:
    """By process, where there are several."""
    if run.total_cpu_seconds is None:
        return ABSENT
    parts = ", ".join(f"{readable(name)} {seconds:.1f}" for name, seconds in run.cpu_seconds.items())
    return f"{run.total_cpu_seconds:.1f} s" + (f" ({parts})" if len(run.cpu_seconds) > 1 else "")


def _goodput(goodput: Goodput | None) -> str:
    if goodput is None:
        return ABSENT
    limits = ", ".join(f"{key.removesuffix('_seconds')} ≤ {limit:g} s" for key, limit in goodput.slo.items() if limit)
    return f"{goodput.share:.1%}, {goodput.requests_per_s:.2f} requests/s ({limits})"


def _latencies(subjects: Sequence[Subject]) -> Table:
    rows = tuple(
        (f"{name}, {subject.name}", *_summary(summary))
        for key, name in LATENCIES.items()
        for subject in subjects
        if (summary := _latency(subject.shown, key)) is not None
    )
    return Table("Latencies", ("", *STATISTICS), rows, "Of the run with the median throughput.")


def _ratios(documents: Mapping[str, Document]) -> Table:
    rows = tuple(
        (what, f"{ratio.median:.2f}", f"{ratio.min:.2f} to {ratio.max:.2f}")
        for file, document in documents.items()
        for what, ratio in _ratios_of(document, f" [{readable(file)}]" if len(documents) > 1 else "")
    )
    note = "Headway's figure over the peer's (of latencies, the means), round by round."
    return Table("Headway beside its peers", ("", "median", "least to greatest"), rows, note)


def _ratios_of(document: Document, suffix: str) -> Iterator[tuple[str, RatioSpread]]:
    names = {THROUGHPUT.key: THROUGHPUT.name, **LATENCIES}
    for key, peer in document.peers.items():
        name = readable(key)
        load = None if document.load is None else grown(document.load, document.growth, "{:.0%}")
        sections = [
            ("all at once", peer.bursts),
            ("" if load is None else f"each at {load} of its own capacity", peer),
            ("" if load is None else f"both at {load} of {name}'s", peer.same_rate),
        ]
        for how, section in sections:
            for figure, ratio in section.ratios.items() if section is not None else ():
                yield ", ".join(filter(None, [f"{names.get(figure, readable(figure))} ÷ {name}", how])) + suffix, ratio


def _tenants(subjects: Sequence[Subject]) -> Table:
    rows = tuple(
        (
            f"{readable(name)}, {subject.name}",
            f"{figures.weight:g}",
            f"{figures.num_requests:,}",
            f"{figures.num_output_tokens:,}",
            *(_mean_and_p99(getattr(figures, key)) for key in WAITS),
        )
        for name in names_in(subject.shown.tenants for subject in subjects)
        for subject in subjects
        if len(subject.shown.tenants) > 1 and (figures := subject.shown.tenants.get(name)) is not None
    )
    head = ("", "weight", "requests", "output tokens", *WAITS.values())
    return Table("Tenants", head, rows, "Latencies: mean and p99.")


def _labels(subjects: Sequence[Subject]) -> Table:
    """Of the parts of a mix, such as short and long requests: what an order that helps some costs others."""
    parts = {subject: _by_label(subject.shown.requests) for subject in subjects}
    rows = tuple(
        (f"{readable(label)}, {subject.name}", *_label_row(parts[subject][label]))
        for label in names_in(parts.values())
        for subject in subjects
        if len(parts[subject]) > 1 and label in parts[subject]
    )
    head = ("", "requests", *WAITS.values(), "longest wait")
    return Table("Parts of the mix", head, rows, "Latencies: mean and p99.")


def _by_label(requests: Sequence[RequestRow]) -> dict[str, list[RequestRow]]:
    parts: defaultdict[str, list[RequestRow]] = defaultdict(list)
    for request in requests:
        if request.label is not None:
            parts[request.label].append(request)
    return parts


def _label_row(requests: Sequence[RequestRow]) -> tuple[str, ...]:
    summaries = (summarise(getattr(request, key) for request in requests) for key in WAITS)
    waits = [request.queue_seconds for request in requests if request.queue_seconds is not None]
    return f"{len(requests):,}", *map(_mean_and_p99, summaries), _show(max(waits, default=None), Unit.SECONDS)


def _latency(run: RunFigures, key: str) -> Summary | None:
    summary: Summary | None = getattr(run, key)
    return summary


def _summary(summary: Summary) -> tuple[str, ...]:
    return tuple(Unit.SECONDS.show(getattr(summary, statistic)) for statistic in STATISTICS)


def _mean_and_p99(summary: Summary | None) -> str:
    if summary is None:
        return ABSENT
    return f"{Unit.SECONDS.show(summary.mean)}, {Unit.SECONDS.show(summary.p99)}"


def _show(value: float | None, unit: Unit) -> str:
    return ABSENT if value is None else unit.show(value)
