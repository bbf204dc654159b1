"""`headway bench compare`: what a change did to the figures."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headway.commands.numbers import Finite
from headway.commands.statuses import FAILED
from headway.core.errors import HeadwayError

REPORT = click.Path(dir_okay=False, path_type=Path)


@click.command("compare", short_help="Compare a report with an earlier one.")
@click.argument("before", type=REPORT, metavar="BEFORE.json")
@click.argument("after", type=REPORT, metavar="AFTER.json")
@click.option(
    "--fail-above",
    "limit",
    type=Finite(1.0),
    metavar="X",
    help="Exit with status 1 if a figure got worse by more than X times, such as 1.1, or is gone.",
)
@click.option(
    "--figure",
    "keys",
    multiple=True,
    metavar="KEY",
    help="For --fail-above: a figure's key in --json, such as ttft_seconds.p99; may be repeated. Default:"
    " output_tokens_per_s and the means of the latencies; of --target queue, all rates.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(before: Path, after: Path, limit: float | None, keys: tuple[str, ...], as_json: bool) -> None:
    """Compare two reports of `headway bench --json`: each figure, and whether it changed by more than runs differ.

    Warns if not the same was run. Figures are medians of a file's runs, beside the least and the greatest.
    """
    if keys and limit is None:
        raise click.UsageError("--figure is for --fail-above")
    try:
        from loadtest.results.change_report import failures_text, to_json, to_text
        from loadtest.results.compare_files import compare_files
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing

    comparison = compare_files(before, after)
    failures = [] if limit is None else comparison.failures(limit, keys)
    if as_json:
        report = {**to_json(comparison), "fail_above": limit, "failed": [change.figure.key for change in failures]}
        click.echo(json.dumps(report, indent=1))
    else:
        click.echo(to_text(comparison))
    if limit is not None and failures:
        click.echo(failures_text(failures, limit), err=True)
        raise SystemExit(FAILED)
