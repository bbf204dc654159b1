"""`headway bench report`: reports that were written before, as one page."""

from __future__ import annotations

from pathlib import Path

import click

from headway.core.errors import HeadwayError

REPORTS = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("report")
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

    check_writable(html_path)
    write_page({path.name: read_document(path) for path in reports}, html_path)
