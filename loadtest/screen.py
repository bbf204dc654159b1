"""The progress of a run on a terminal: one line that rewrites itself, and nothing where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadtest.progress import Progress, Watch, nobody


@contextmanager
def watching() -> Iterator[Watch]:
    """What shows progress while the block runs. What others print to standard error meanwhile goes above it."""
    if not sys.stderr.isatty():
        yield nobody
        return
    # Drawn when there is news only: a thread that redraws would take time from what is measured.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:

        def show(progress: Progress) -> None:
            live.update(Text(f"  {progress}", style="dim", no_wrap=True), refresh=True)

        yield show
