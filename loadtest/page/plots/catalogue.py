"""Which plots a page has, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from loadtest.page import svg
from loadtest.page.plots import latencies, loads, requests, steps, timelines
from loadtest.page.subjects import Subject
from loadtest.results.figures import LATENCIES

REQUEST_TIMES = {
    **{key: name for key, name in LATENCIES.items() if key != "inter_token_gap_seconds"},
    "max_gap_seconds": "longest gap between a request's tokens",
}
SEVERAL_LOADS = ("ttft_seconds", "tpot_seconds", "e2e_seconds")


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    note: str
    figure: Figure | None
    """None: its data are absent."""


@dataclass(frozen=True, slots=True)
class DrawnPlot:
    title: str
    note: str
    drawing: Markup


def drawn_plots(subjects: Sequence[Subject]) -> list[DrawnPlot]:
    """As the page takes them; those whose data are there."""
    with svg.style():
        return [
            DrawnPlot(plot.title, plot.note, svg.to_svg(plot.figure, f"plot-{number}", plot.title))
            for number, plot in enumerate((*_over_load(subjects), *_of_all(subjects), *_of_each(subjects)))
            if plot.figure is not None
        ]


def _over_load(subjects: Sequence[Subject]) -> Iterator[Plot]:
    yield Plot(
        "Throughput against load",
        "Bars: least and greatest of the runs at a load. Dotted: with all requests at once.",
        loads.draw_throughput(subjects),
    )
    for key in SEVERAL_LOADS:
        for statistic in ("mean", "p99"):
            name = LATENCIES[key]
            figure = loads.draw_latency(subjects, key, statistic, name)
            yield Plot(f"{name.capitalize()} against load, {statistic}", "", figure)


def _of_all(subjects: Sequence[Subject]) -> Iterator[Plot]:
    for key, name in REQUEST_TIMES.items():
        figure = latencies.draw(subjects, key, name)
        yield Plot(name.capitalize(), "Share of requests that took no longer.", figure)
    yield Plot(
        "Requests in the system",
        "Come and not ended, waiting or running.",
        requests.draw_in_system(subjects),
    )
    yield Plot(
        "Step time by batch size",
        "Median up to the 90th percentile. Dotted: the least time in which this machine could do it.",
        steps.draw_step_times(subjects),
    )
    yield Plot(
        "Slots used",
        "Of the slots over all steps (max_num_seqs each; of a static batch, its rows), those that computed something.",
        steps.draw_slots(subjects),
    )


def _of_each(subjects: Sequence[Subject]) -> Iterator[Plot]:
    """What cannot be laid over one another."""
    detailed = [subject for subject in subjects if subject.shown.timeline or subject.shown.requests]
    for subject in detailed:
        of = f", {subject.name}" if len(detailed) > 1 else ""
        yield Plot(
            f"Batch composition{of}",
            "Tokens of each step of the engine.",
            timelines.draw_composition(subject),
        )
        yield Plot(
            f"Running and waiting{of}",
            "Sequences that run, and requests that are due and do not run yet.",
            timelines.draw_queue(subject),
        )
        yield Plot(
            f"Service of tenants{of}",
            "Prompt and output tokens that each tenant had got, over its weight.",
            requests.draw_service(subject),
        )
