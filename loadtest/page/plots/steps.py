"""How long the engine's steps took beside the least they could, and how much of its batch was used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.subjects import Subject
from loadtest.results.documents import StepSummary

Sizes = dict[int, StepSummary]
"""By number of sequences, in ascending order."""


def draw_step_times(subjects: Sequence[Subject]) -> Figure | None:
    """Of the steps that only decode: their median up to their 90th percentile over their size, and the floor."""
    shown = {subject.number: sizes for subject in subjects if (sizes := _sizes(subject))}
    if not shown:
        return None
    figure = svg.new_figure()
    axes = figure.subplots()
    targets = {id(subject.document): subject for subject in reversed(subjects)}
    for subject in subjects:
        if subject.number in shown:
            _draw_sizes(axes, subject, shown[subject.number])
            if subject is targets[id(subject.document)]:
                _draw_floor(axes, subject, shown[subject.number])
    axes.set_xlabel("sequences in a step that only decodes")
    axes.set_ylabel("step, ms")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    svg.add_legend(axes)
    return figure


def draw_slots(subjects: Sequence[Subject]) -> Figure | None:
    """The share of slots that computed something, with the least and the greatest of the runs."""
    shares = {subject: found for subject in subjects if (found := _shares(subject))}
    if not shares:
        return None
    figure = svg.new_figure(height=0.9 + 0.38 * len(shares))
    axes = figure.subplots()
    for position, (subject, values) in enumerate(shares.items()):
        _draw_bar(axes, position, subject, values)
    axes.set_yticks(range(len(shares)), [subject.name for subject in shares])
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("slots used, %")
    axes.grid(visible=False, axis="y")
    return figure


def _draw_bar(axes: Axes, position: int, subject: Subject, values: Sequence[float]) -> None:
    middle = 100 * float(np.median(values))
    reach = [[middle - 100 * min(values)], [100 * max(values) - middle]]
    axes.barh(
        position,
        middle,
        height=0.6,
        color=svg.colour(subject.number),
        xerr=reach if len(values) > 1 else None,
        error_kw={"ecolor": svg.INK, "capsize": 3, "elinewidth": 1},
    )
    axes.annotate(
        f"{middle:.0f} %", (100 * max(values), position), xytext=(6, 0), textcoords="offset points", va="center"
    )


def _draw_sizes(axes: Axes, subject: Subject, sizes: Sizes) -> None:
    medians = [1000 * summary.p50 for summary in sizes.values()]
    above = [1000 * summary.p90 for summary in sizes.values()]
    line = svg.colour(subject.number)
    axes.fill_between(list(sizes), medians, above, color=line, alpha=0.2, linewidth=0)
    axes.plot(list(sizes), medians, color=line, marker="o", markersize=3, label=svg.label(subject.name))


def _draw_floor(axes: Axes, subject: Subject, sizes: Sizes) -> None:
    """Of a file's target, whose settings it was computed for."""
    floor = subject.document.floor
    by_size = {} if floor is None else floor.decode_step_seconds
    known = {size: 1000 * by_size[str(size)] for size in sizes if str(size) in by_size}
    if known:
        axes.plot(
            list(known),
            list(known.values()),
            color=svg.colour(subject.number),
            linewidth=1,
            linestyle=":",
            label=svg.label(f"floor of {subject.name}"),
        )


def _sizes(subject: Subject) -> Sizes:
    found = {int(size): summary for size, summary in subject.shown.step_seconds.items() if summary is not None}
    return dict(sorted(found.items()))


def _shares(subject: Subject) -> list[float]:
    return [run.slot_utilisation for run in subject.runs if run.slot_utilisation is not None]
