"""History for a terminal: a line of blocks per model and figure, as wide as there is room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from headway.commands.history import WINDOW_SECONDS, History, Sample, Series
from headway.commands.sparkline import sparkline

MAX_COLUMNS, MIN_COLUMNS = 60, 10
"""Of one line. Less says nothing, and the figures stand alone then."""
SAMPLES_PER_COLUMN = 2
"""At least, so that a sample that comes late leaves no gap."""
MAX_MODELS_SHOWN = 4
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    series: Callable[[History, str, float, int], Series]
    now: Callable[[Sample], float] | None = None
    """None: as the line's end says; a rate needs some time."""
    unit: str = ""


FIGURES = (
    Figure("waiting jobs", History.waiting, lambda sample: sample.num_waiting),
    Figure("oldest wait", History.oldest_wait, lambda sample: sample.oldest_wait_seconds, " s"),
    Figure("running sequences", History.running, lambda sample: sample.num_running),
    Figure("output tokens/s", History.tokens_per_second),
)


class HistoryView:
    """The models with most waiting jobs first; renders itself for the width that it finds."""

    def __init__(self, history: History, now: float, interval: float) -> None:
        """``interval``: seconds between two samples."""
        self._history = history
        self._now = now
        self._max_columns = min(MAX_COLUMNS, max(1, int(WINDOW_SECONDS / (SAMPLES_PER_COLUMN * interval))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        models = sorted(self._history.models, key=self._newest_waiting, reverse=True)
        num_columns = self._room(options.max_width, models)
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for name in ("model", "", f"last {WINDOW_SECONDS / 60:.0f} minutes"[:num_columns] if num_columns else None):
            if name is not None:
                table.add_column(name, no_wrap=True, overflow="ellipsis")
        for name in ("now", "most"):
            table.add_column(name, justify="right", no_wrap=True)
        for model in models[:MAX_MODELS_SHOWN]:
            for row in self._rows(model, num_columns, options.ascii_only):
                table.add_row(*row)
        yield table
        if len(models) > MAX_MODELS_SHOWN:
            yield f"and {len(models) - MAX_MODELS_SHOWN} more models"

    def _newest_waiting(self, model: str) -> float:
        return _newest(self._history.waiting(model, self._now, self._max_columns)) or 0.0

    def _room(self, width: int, models: list[str]) -> int:
        """Columns that are left for the line; 0 if they are too few."""
        names = max((len(model) for model in models), default=5) + max(len(figure.name) for figure in FIGURES)
        left = width - names - 2 * len("12345.6 s") - 6
        return min(self._max_columns, left) if left >= MIN_COLUMNS else 0

    def _rows(self, model: str, num_columns: int, ascii_only: bool) -> Iterator[list[str]]:
        for index, figure in enumerate(FIGURES):
            series = figure.series(self._history, model, self._now, num_columns or self._max_columns)
            now = self._now_of(figure, model, series)
            # A mean of the newest share is below what is said now while that is just rising.
            known = [value for value in (*series, now) if value is not None]
            yield [
                escape(model) if index == 0 else "",
                figure.name,
                *([sparkline(series, ascii_only)] if num_columns else []),
                _figure(now, figure.unit),
                _figure(max(known, default=None), figure.unit),
            ]

    def _now_of(self, figure: Figure, model: str, series: Series) -> float | None:
        """Unknown if the end of the line is a gap: nobody answers."""
        end, sample = _newest(series), self._history.newest(model)
        return end if figure.now is None or end is None or sample is None else figure.now(sample)


def _newest(series: Series) -> float | None:
    """Of the newest two shares: the last one may have just begun."""
    return next((value for value in reversed(series[-2:]) if value is not None), None)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.1f}{unit}" if unit or value != round(value) else f"{value:.0f}"
