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
    figure: Figure


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
            for number, plot in enumerate(plots(subjects))
        ]


def plots(subjects: Sequence[Subject]) -> Iterator[Plot]:
    """To be drawn and saved within `svg.style`."""
    for title, note, figure in (*_of_all(subjects), *_of_each(subjects)):
        if figure is not None:
            yield Plot(title, note, figure)


Candidate = tuple[str, str, Figure | None]


def _of_all(subjects: Sequence[Subject]) -> Iterator[Candidate]:
    yield (
        "Throughput against load",
        "Bars: least and greatest of the runs at a load. Dotted: with all requests at once.",
        loads.draw_throughput(subjects),
    )
    for key in SEVERAL_LOADS:
        for statistic in ("mean", "p99"):
            name = LATENCIES[key]
            title = f"{name.capitalize()} against load, {statistic}"
            yield title, "", loads.draw_latency(subjects, key, statistic, name)
    for key, name in REQUEST_TIMES.items():
        yield name.capitalize(), "Share of requests that took no longer.", latencies.draw(subjects, key, name)
    yield "Requests in the system", "Come and not ended, waiting or running.", requests.draw_in_system(subjects)
    yield (
        "Step time by batch size",
        "Median up to the 90th percentile. Dotted: the least time in which this machine could do it.",
        steps.draw_step_times(subjects),
    )
    yield (
        "Slots used",
        "Of the batch's slots over all steps, those that computed something.",
        steps.draw_slots(subjects),
    )


def _of_each(subjects: Sequence[Subject]) -> Iterator[Candidate]:
    for subject in subjects:
        of = "" if len([s for s in subjects if s.shown.timeline or s.shown.requests]) == 1 else f", {subject.name}"
        yield f"Batch composition{of}", "Tokens of each step of the engine.", timelines.draw_composition(subject)
        yield f"Running and waiting{of}", "Sequences, as the engine knows them.", timelines.draw_queue(subject)
        yield (
            f"Service of tenants{of}",
            "Prompt and output tokens that each tenant had got, over its weight.",
            requests.draw_service(subject),
        )
