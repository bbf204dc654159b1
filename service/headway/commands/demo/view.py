"""Shows the demo's jobs while they run: growing streams on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Self

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.broker.results import Chunk
    from headway.commands.demo.run import DemoRun

LINE_CHARACTERS = 72
FRAMES_PER_SECOND = 12
COLOURS = {"bakery": "yellow", "school": "cyan", "travel": "magenta"}


class QuietView:
    """Stages only, on stderr: stdout belongs to whoever reads the JSON."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stage(self, stage: str) -> None:
        click.echo(stage, err=True)

    def changed(self, run: DemoRun, chunk: Chunk) -> None:
        pass


class LineView:
    """``tenant/id: text``, a line whenever there is a line's worth of text, so that the jobs' lines interleave."""

    def __init__(self) -> None:
        self._unprinted: defaultdict[str, str] = defaultdict(str)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stage(self, stage: str) -> None:
        click.echo(f"-- {stage}")

    def changed(self, run: DemoRun, chunk: Chunk) -> None:
        *lines, rest = (self._unprinted[run.name] + chunk.text).split("\n")
        if chunk.is_last:
            lines.append(rest)
            rest = ""
        elif len(rest) > LINE_CHARACTERS:
            line, _, rest = rest.rpartition(" ")
            lines.append(line)
        self._unprinted[run.name] = rest
        for line in lines:
            if line.strip():
                click.echo(f"{run.name}: {line.strip()}")


class LiveView:
    """The streams that run now, each on one line that grows, below the counts."""

    def __init__(self, runs: list[DemoRun]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._runs = runs
        self._console = Console()
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def stage(self, stage: str) -> None:
        self._console.print(stage, style="dim", markup=False, highlight=False)

    def changed(self, run: DemoRun, chunk: Chunk) -> None:
        """The live display draws itself, so many times a second."""

    def _render(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ignore", ratio=1)
        table.add_row("", Text(self._counts(), style="bold"))
        room = max(20, self._console.width - max(len(run.name) for run in self._runs) - 2)
        for run in self._runs:
            if run.is_running:
                text = " ".join(run.text.split())
                table.add_row(Text(run.name, style=COLOURS.get(run.job.tenant, "")), Text(text[-room:]))
        return table

    def _counts(self) -> str:
        states = Counter(
            "done" if run.result else "running" if run.is_running else "waiting"
            for run in self._runs
            if run.submitted_at is not None
        )
        return "   ".join(f"{states[state]} {state}" for state in ("waiting", "running", "done"))
