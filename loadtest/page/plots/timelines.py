"""What the engine's batches were made of from step to step, and who waited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.subjects import Subject
from loadtest.results.documents import StepColumns

MAX_POINTS = 500
IDLE = 10
"""Times the usual distance between two steps: from there on the engine had nothing to do. (A file need not tell of
every step.)"""
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
    """Sequences that run and those that wait, as the engine knows them."""
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
    longest = IDLE * float(np.median(np.diff(ends))) if len(ends) > 1 else np.inf
    is_last = np.append(starts[1:] - ends[:-1] > longest, True)
    stops = np.flatnonzero(is_last) + 1
    values = (np.insert(np.array(column, dtype=float), stops, 0.0) for column in columns)
    return _thinned([np.insert(starts, stops, ends[is_last]), *values])


def _thinned(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Of many steps, means over as many neighbours as needed."""
    size = -(-len(arrays[0]) // MAX_POINTS)
    if size == 1:
        return arrays
    firsts = np.arange(0, len(arrays[0]), size)
    counts = np.diff([*firsts, len(arrays[0])])
    return [arrays[0][firsts], *(np.add.reduceat(array, firsts) / counts for array in arrays[1:])]
