"""`headway bench report`: reports that were written before, as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from headway.core.errors import HeadwayError

REPORTS = click.Path(dir_okay=False, path_type=Path)


@click.command("report", short_help="Show reports as a page with tables and plots.")
@click.argument("reports", nargs=-1, required=True, type=REPORTS, metavar="REPORT.json...")
@click.option(
    "--html",
    "html_path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Where to write the page: one file that needs nothing else.",
)
def command(reports: tuple[Path, ...], html_path: Path) -> None:
    """Show reports of `headway bench --json` as one HTML page with tables and plots.

    Several reports stand side by side: one system at several rates gives its throughput against the load.
    """
    try:
        from loadtest.page.write import write_page
        from loadtest.results.documents import read_document
        from loadtest.results.files import check_writable
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing

    named = _named(reports)
    check_writable(html_path)
    write_page({name: read_document(path) for name, path in named.items()}, html_path)


def _named(reports: Sequence[Path]) -> dict[str, Path]:
    """As short as they can be told apart: by their names, or with so many of their folders as that takes."""
    paths = [path.absolute() for path in reports]
    for num_parts in range(max(len(path.parts) for path in paths) + 1):
        named = {"/".join(path.parts[-num_parts:]) if num_parts else path.stem: path for path in paths}
        if len(named) == len(paths):
            return named
    raise click.UsageError("the same report twice")
