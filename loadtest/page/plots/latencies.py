"""How a latency is distributed over requests: the share of them that took no longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from loadtest.page import svg
from loadtest.page.subjects import Subject

MAX_POINTS = 400
LONG_TAIL = 20.0
"""Greatest over median, from which on the axis is logarithmic: else the many would be one vertical line."""


def draw(subjects: Sequence[Subject], key: str, name: str) -> Figure | None:
    """``key`` is one of a request's times. None if no request of any subject has it."""
    values = {subject.number: _values(subject, key) for subject in subjects}
    shown = [subject for subject in subjects if values[subject.number].size]
    if not shown:
        return None
    figure = svg.new_figure()
    axes = figure.subplots()
    everything = np.concatenate([values[subject.number] for subject in shown])
    scale = svg.scale_for(everything.max())
    for subject in shown:
        _draw_line(axes, subject, values[subject.number] * scale.factor)
    _set_axis(axes, everything * scale.factor)
    axes.set_xlabel(f"{name}, {scale.unit}")
    axes.set_ylabel("requests")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.02)
    svg.add_legend(axes)
    return figure


def _values(subject: Subject, key: str) -> np.ndarray:
    """Of answered requests, but for the wait, which those too had that ended otherwise."""
    requests = (each for each in subject.shown.requests if each.was_answered or key == "queue_seconds")
    found = (getattr(request, key) for request in requests)
    return np.sort(np.array([value for value in found if value is not None], dtype=float))


def _draw_line(axes: Axes, subject: Subject, ordered: np.ndarray) -> None:
    """A staircase; of many requests so many steps that nobody sees the difference, the last among them."""
    ranks = np.unique(np.linspace(0, len(ordered) - 1, min(MAX_POINTS, len(ordered))).round().astype(int))
    shares = (ranks + 1) / len(ordered)
    axes.plot(
        [ordered[0], *ordered[ranks]],
        [0, *shares],
        drawstyle="steps-post",
        color=svg.colour(subject.number),
        linestyle=svg.dashes(subject.number),
        label=svg.label(subject.name),
    )


def _set_axis(axes: Axes, values: np.ndarray) -> None:
    positive = values[values > 0]
    if positive.size and values.max() > LONG_TAIL * np.median(positive) and np.median(values) > 0:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
