"""What the requests tell together: how many were in the system, and what each tenant had got, at every moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.names import readable
from loadtest.page.subjects import Subject
from loadtest.results.documents import RequestRow, RunFigures

NUM_MOMENTS = 500


def draw_in_system(subjects: Sequence[Subject]) -> Figure | None:
    """Requests that had come and not ended, waiting or running."""
    shown = [subject for subject in subjects if subject.shown.requests]
    if not shown:
        return None
    figure = svg.new_figure()
    axes = figure.subplots()
    for subject in shown:
        moments = _moments(subject.shown)
        came = _count(moments, [request.due_at for request in subject.shown.requests])
        ended = [end for request in subject.shown.requests if (end := _ended_at(request)) is not None]
        axes.plot(
            moments,
            came - _count(moments, ended),
            drawstyle="steps-post",
            color=svg.colour(subject.number),
            linestyle=svg.dashes(subject.number),
            label=svg.label(subject.name),
        )
    axes.set_xlabel("time, s")
    axes.set_ylabel("requests in the system")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    svg.add_legend(axes)
    return figure


def draw_service(subject: Subject) -> Figure | None:
    """Tokens by tenant over its weight: parallel lines are a fair share, as long as all of them have work waiting."""
    tenants = sorted({request.tenant for request in subject.shown.requests})
    if len(tenants) < 2:
        return None
    figure = svg.new_figure()
    axes = figure.subplots()
    moments = _moments(subject.shown)
    for number, tenant in enumerate(tenants):
        figures = subject.shown.tenants.get(tenant)
        weight = figures.weight if figures is not None and figures.weight > 0 else 1.0
        served = [request for request in subject.shown.requests if request.tenant == tenant]
        name = readable(tenant) if weight == 1 else f"{readable(tenant)}, weight {weight:g}"
        axes.plot(
            moments,
            sum((_service(moments, request) for request in served), np.zeros_like(moments)) / weight,
            color=svg.colour(number),
            linestyle=svg.dashes(number),
            label=svg.label(name),
        )
    axes.set_xlabel("time, s")
    axes.set_ylabel("tokens served ÷ weight")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    svg.add_legend(axes)
    return figure


def _service(moments: np.ndarray, request: RequestRow) -> np.ndarray:
    """Tokens that a request had got: its prompt with its first token, the others evenly until its end."""
    end = _ended_at(request)
    if request.ttft_seconds is None or end is None:
        return np.zeros_like(moments)
    first = request.due_at + request.ttft_seconds
    share = np.clip((moments - first) / max(end - first, 1e-9), 0, 1)
    return np.where(moments >= first, request.num_prompt_tokens + share * request.num_output_tokens, 0)


def _moments(run: RunFigures) -> np.ndarray:
    ends = (end for request in run.requests if (end := _ended_at(request)) is not None)
    last = max([*ends, *(request.due_at for request in run.requests), run.duration_seconds or 0])
    return np.linspace(0, last, NUM_MOMENTS)


def _ended_at(request: RequestRow) -> float | None:
    return None if request.e2e_seconds is None else request.due_at + request.e2e_seconds


def _count(moments: np.ndarray, events: Sequence[float]) -> np.ndarray:
    """How many of the events lay at or before each moment."""
    return np.searchsorted(np.sort(np.array(events, dtype=float)), moments, side="right")
