"""`headway tune`: the settings of the scheduler that give the most throughput here and keep a time per token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags
from headway.commands.numbers import ABOVE_ZERO, Finite
from headway.commands.running import sigterm_as_ctrl_c
from headway.commands.statuses import FAILED
from headway.core.errors import HeadwayError

if TYPE_CHECKING:
    from loadtest.tuning.tune import Tuned
    from loadtest.workloads.requests import Request

OUTPUT = click.Path(dir_okay=False, path_type=Path)
PLOTS = (".svg", ".png", ".pdf")
TUNED = ("max_num_seqs", "tpot_target", "batching", "prefix_sharing")
"""Settings that are not for the command line to say here: the search does, or the measurement would not hold."""


@click.command("tune", cls=SettingsCommand)
@click.option("--tpot", type=ABOVE_ZERO, required=True, metavar="SECONDS", help="The most per output token.")
@click.option("--ttft", type=ABOVE_ZERO, metavar="SECONDS", help="The most until the first token, in a full batch.")
@click.option(
    "--share",
    type=Finite(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="Of the requests, that are to keep both.",
)
@click.option("--scenario", metavar="NAME|FILE", help="The requests' lengths; how they arrive does not matter here.")
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A workload file instead. Default: 64 requests of 16 to 256 prompt and 8 to 256 output tokens.",
)
@click.option(
    "--minutes", type=ABOVE_ZERO, default=10.0, show_default=True, help="After which no further run is begun."
)
@click.option(
    "--run-seconds", type=ABOVE_ZERO, default=5.0, show_default=True, help="Of each run; longer ones are less noisy."
)
@click.option("--most-seqs", type=click.IntRange(1), default=512, show_default=True, help="The largest batch to try.")
@click.option("--values", type=OUTPUT, metavar="OUT", help="Where to write the best settings as Helm values.")
@click.option("--json", "json_path", type=OUTPUT, metavar="OUT", help="Where to write all that was measured.")
@click.option(
    "--plot", type=OUTPUT, metavar="OUT", help="Where to draw throughput over time per token: .svg, .png or .pdf."
)
@setting_flags("engine", "scheduler", without=lambda setting: setting.name in TUNED)
def command(
    flags: SettingFlags,
    tpot: float,
    ttft: float | None,
    share: float,
    scenario: str | None,
    workload: Path | None,
    minutes: float,
    run_seconds: float,
    most_seqs: int,
    values: Path | None,
    json_path: Path | None,
    plot: Path | None,
) -> None:
    """Find by stress the largest batch, and the step's tokens and chunks, that keep a time per output token.

    The batch is kept full with requests of the workload while each candidate is measured. Ctrl-C or SIGTERM ends the
    search and keeps what was found. Exits with status 1 if nothing keeps the goal.
    """
    _need_loadtest(with_plot=plot is not None)
    _check_outputs(values, json_path, plot)
    from loadtest.bench import say
    from loadtest.tuning.knobs import Goal
    from loadtest.tuning.search import Limits
    from loadtest.tuning.show import progress_line, to_text
    from loadtest.tuning.tune import TuneOptions, tune

    name, requests = _requests(scenario, workload)
    options = TuneOptions(name, requests, Goal(tpot, ttft, share), minutes, run_seconds, Limits(most_seqs))
    settings = flags.load()
    with sigterm_as_ctrl_c(), tune(options, settings, say, lambda candidate: say(progress_line(candidate))) as tuned:
        click.echo(to_text(tuned))
        _write(tuned, values, json_path, plot)
    if tuned.best is None or not tuned.best.keeps:
        raise SystemExit(FAILED)


def _requests(scenario: str | None, workload: Path | None) -> tuple[str, Callable[[int], Sequence[Request]]]:
    """Their name, and how to draw them for a vocabulary. Raises ``WorkloadError``."""
    from loadtest.workloads.drawing import draw_requests
    from loadtest.workloads.requests import DEFAULT_WORKLOAD, load_workload
    from loadtest.workloads.scenario_files import load_scenario

    if scenario is None:
        requests = load_workload(workload or DEFAULT_WORKLOAD)
        return (workload or DEFAULT_WORKLOAD).name, lambda _: requests
    if workload is not None:
        raise click.UsageError("--scenario and --workload exclude each other")
    named = load_scenario(scenario)
    draw_requests(named)  # what it lacks is better known before an engine is loaded
    return named.name, lambda vocab_size: draw_requests(named, vocab_size)


def _check_outputs(values: Path | None, json_path: Path | None, plot: Path | None) -> None:
    """What cannot be written is better known before the runs, too."""
    from loadtest.results.files import check_all_writable

    if plot is not None and plot.suffix not in PLOTS:
        raise click.BadParameter(f"{plot} must end in one of {', '.join(PLOTS)}", param_hint="--plot")
    check_all_writable(values, json_path, plot)


def _write(tuned: Tuned, values: Path | None, json_path: Path | None, plot: Path | None) -> None:
    from loadtest.results.files import write_report
    from loadtest.tuning.show import helm_values, to_json

    if json_path is not None:
        write_report(json_path, json.dumps(to_json(tuned), indent=1) + "\n")
    if tuned.best is None:
        return
    if values is not None:
        write_report(values, helm_values(tuned))
    if plot is not None:
        from loadtest.tuning.picture import write_picture

        write_picture(tuned, plot)


def _need_loadtest(with_plot: bool) -> None:
    """What is missing is better known before the runs."""
    try:
        import loadtest.tuning.tune

        if with_plot:
            import loadtest.tuning.picture  # noqa: F401 (whether it is installed)
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing
