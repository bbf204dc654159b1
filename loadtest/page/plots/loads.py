"""What a system gives and how long it takes, over what it is offered: needs runs at two loads or more.

A load is a rate of requests, or, where no run has one, the number of clients of a closed loop. A ramp has no one rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.subjects import Subject
from loadtest.results.documents import Document, RunFigures
from loadtest.results.figures import Readings
from loadtest.workloads.arrivals import Arrivals

Reader = Callable[[RunFigures], float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """Of one system at one load."""

    load: float
    readings: Readings


def draw_throughput(subjects: Sequence[Subject]) -> Figure | None:
    """With what each system gave when all requests came at once, as a level that it cannot pass for long."""
    figure = _draw(subjects, lambda run: run.output_tokens_per_s, "output tokens per second")
    if figure is None or not _has_rates(subjects):
        return figure
    for number, system in enumerate(_systems(subjects)):
        if at_once := [run.output_tokens_per_s for run in _bursts(system, subjects)]:
            level = Readings(tuple(at_once)).median
            figure.axes[0].axhline(level, color=svg.colour(number), linewidth=0.9, linestyle=(0, (1, 3)))
    figure.axes[0].autoscale(axis="y")
    figure.axes[0].set_ylim(bottom=0)
    return figure


def _bursts(system: str, subjects: Sequence[Subject]) -> list[RunFigures]:
    return [
        run
        for subject in subjects
        for run in subject.runs
        if subject.system == system and run.rate is None and _may_be_burst(subject.document)
    ]


def _may_be_burst(document: Document) -> bool:
    """Where a run without a rate is one: clients of a closed loop and traces have none either."""
    return document.num_clients is None and document.arrivals != Arrivals.TRACE


def draw_latency(subjects: Sequence[Subject], key: str, statistic: str, name: str) -> Figure | None:
    def read(run: RunFigures) -> float | None:
        summary = getattr(run, key)
        return None if summary is None else float(getattr(summary, statistic))

    greatest = max((value for subject in subjects for run in subject.runs if (value := read(run))), default=0.0)
    scale = svg.scale_for(greatest)

    def read_scaled(run: RunFigures) -> float | None:
        seconds = read(run)
        return None if seconds is None else scale.factor * seconds

    return _draw(subjects, read_scaled, f"{name}, {statistic}, {scale.unit}")


def _draw(subjects: Sequence[Subject], read: Reader, title: str) -> Figure | None:
    """Bars from the least of the runs to the greatest."""
    lines = {system: _points(system, subjects, read) for system in _systems(subjects)}
    if all(len(points) < 2 for points in lines.values()):
        return None
    figure = svg.new_figure()
    axes = figure.subplots()
    for number, (system, points) in enumerate(lines.items()):
        if points:
            _draw_line(axes, number, system, points)
    axes.set_xlabel("offered load, requests per second" if _has_rates(subjects) else "clients of the closed loop")
    axes.set_ylabel(title)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    svg.add_legend(axes)
    return figure


def _draw_line(axes: Axes, number: int, system: str, points: Sequence[Point]) -> None:
    middle = [point.readings.median for point in points]
    below = [point.readings.median - point.readings.least for point in points]
    above = [point.readings.greatest - point.readings.median for point in points]
    axes.errorbar(
        [point.load for point in points],
        middle,
        yerr=[below, above],
        color=svg.colour(number),
        linestyle=svg.dashes(number),
        marker="o",
        markersize=4,
        capsize=3,
        elinewidth=1,
        label=svg.label(system),
    )


def _points(system: str, subjects: Sequence[Subject], read: Reader) -> list[Point]:
    """In ascending order. Where capacity decides, a system's rounds have rates of their own: one point for each."""
    has_rates = _has_rates(subjects)
    values: defaultdict[float, list[float]] = defaultdict(list)
    for subject in subjects:
        for run in subject.runs if subject.system == system else ():
            load, value = _rate(subject, run) if has_rates else subject.document.num_clients, read(run)
            if load is not None and value is not None:
                values[load].append(value)
    return [Point(load, Readings(tuple(values[load]))) for load in sorted(values)]


def _has_rates(subjects: Sequence[Subject]) -> bool:
    return any(_rate(subject, run) is not None for subject in subjects for run in subject.runs)


def _rate(subject: Subject, run: RunFigures) -> float | None:
    return run.rate if subject.document.growth is None else None


def _systems(subjects: Sequence[Subject]) -> Mapping[str, None]:
    """In their order."""
    return dict.fromkeys(subject.system for subject in subjects)
