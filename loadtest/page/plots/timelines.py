"""What the engine's batches were made of from step to step, and who waited."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.subjects import Subject
from loadtest.results.documents import StepColumns

MAX_POINTS = 500
IDLE = 10
"""Times the usual distance between two steps: from there on the engine had nothing to do. (A file need not tell of
every step, and a pause that is narrower than a point of the plot is none.)"""
DECODES, PREFILL, WAITING = 0, 1, 1
"""Numbers of their colours, on every page."""


def draw_composition(subject: Subject) -> Figure | None:
    """Tokens of each step: those of decodes, one for each sequence, and those of prompts on top."""
    timeline = subject.shown.timeline
    if timeline is None or not timeline.seconds:
        return None
    seconds, decodes, prefill = _columns(timeline, timeline.num_decodes, timeline.num_prefill_tokens)
    figure = svg.new_figure(num_rows=2)
    both, alone = figure.subplots(2, 1, sharex=True)
    both.fill_between(seconds, 0, decodes, step="post", color=svg.colour(DECODES), linewidth=0, label="decodes")
    both.fill_between(
        seconds, decodes, decodes + prefill, step="post", color=svg.colour(PREFILL), linewidth=0, label="prefill"
    )
    both.set_ylabel("tokens in a step")
    # Prompts are hundreds of tokens and decodes a few: by themselves the decodes can be seen.
    alone.fill_between(seconds, 0, decodes, step="post", color=svg.colour(DECODES), linewidth=0)
    alone.set_ylabel("decodes")
    alone.set_xlabel("time, s")
    for axes in (both, alone):
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    svg.add_legend(both)
    return figure


def draw_queue(subject: Subject) -> Figure | None:
    """Sequences that run, and requests that are due and do not run yet, where that is known."""
    timeline = subject.shown.timeline
    if timeline is None or not timeline.seconds:
        return None
    waiting = [np.nan if number is None else number for number in timeline.num_waiting or ()]
    columns: list[tuple[str, Sequence[float], int]] = [("running", timeline.num_running, DECODES)]
    if np.isfinite(waiting).any():
        columns.append(("waiting", waiting, WAITING))
    figure = svg.new_figure()
    axes = figure.subplots()
    for name, column, number in columns:
        seconds, values = _columns(timeline, column)
        axes.plot(
            seconds,
            values,
            drawstyle="steps-post",
            color=svg.colour(number),
            linestyle=svg.dashes(number),
            label=name,
        )
    axes.set_xlabel("time, s")
    axes.set_ylabel("sequences")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    svg.add_legend(axes)
    return figure


def _columns(timeline: StepColumns, *columns: Sequence[float]) -> list[np.ndarray]:
    """The moment when each step began, and the columns from then on; nothing while the engine had nothing to do."""
    ends = np.array(timeline.seconds, dtype=float)
    starts = ends - np.array(timeline.step_seconds, dtype=float)
    stops = _stops(starts, ends)
    firsts = _firsts(stops)
    counts = np.diff([*firsts, len(ends)])
    means = [np.add.reduceat(np.array(column, dtype=float), firsts) / counts for column in columns]
    places = np.searchsorted(firsts, stops)
    return [
        np.insert(starts[firsts], places, ends[stops - 1]),
        *(np.insert(column, places, 0.0) for column in means),
    ]


def _stops(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The places behind those steps after which there was nothing to do."""
    usual = float(np.median(np.diff(ends))) if len(ends) > 1 else 0.0
    longest = max(IDLE * usual, (ends[-1] - starts[0]) / MAX_POINTS)
    return np.append(np.flatnonzero(starts[1:] - ends[:-1] > longest) + 1, len(ends))


def _firsts(stops: np.ndarray) -> np.ndarray:
    """The first of every so many neighbours, whose mean is drawn: of many steps more, and never across a pause, which
    would look like work."""
    size = -(-int(stops[-1]) // MAX_POINTS)
    return np.concatenate([np.arange(begin, end, size) for begin, end in pairwise([0, *stops])])
