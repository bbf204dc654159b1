"""`headway bench`: measure this machine, and compare with other systems."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags
from headway.commands.statuses import FAILED
from headway.core.errors import HeadwayError
from headway.core.scheduler_config import PrefixSharing

ABOVE_ZERO = click.FloatRange(0, min_open=True)
PEERS = "vllm, llamacpp[:bf16|q8_0|file][:SLOTS], transformers, transformers:static[:ROWS], or the other target"


@click.command("bench", cls=SettingsCommand)
@click.option(
    "--target",
    type=click.Choice(["engine", "nats"]),
    default="engine",
    show_default=True,
    help="engine: the engine alone. nats: client, NATS, queue, worker and engine.",
)
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A workload file. Default: 64 requests of 16 to 256 prompt and 8 to 256 output tokens.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["burst", "poisson"]),
    default="burst",
    show_default=True,
    help="burst: all requests at once. poisson: at random moments, at a mean rate.",
)
@click.option("--rate", type=ABOVE_ZERO, help="For poisson: requests per second, the same for every system.")
@click.option(
    "--load",
    type=ABOVE_ZERO,
    help="For poisson without --rate: share of each system's own capacity, which a burst measures first. Default: 0.6.",
)
@click.option("--peers", default="", metavar="NAME,...", help=f"Systems to compare with, in turns: {PEERS}.")
@click.option("--runs", type=click.IntRange(1), help="Runs of each system. Default: 1, with peers 3.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Where to write the report as JSON.",
)
@setting_flags("engine", "scheduler", "queue", "broker", "lease", "lease_terms", "roles", "telemetry")
def command(
    flags: SettingFlags,
    target: str,
    workload: Path | None,
    arrivals: str,
    rate: float | None,
    load: float | None,
    peers: str,
    runs: int | None,
    json_path: Path | None,
) -> None:
    """Measure throughput and latencies with a workload of exact lengths, and how far from the machine's floor they are.

    Exits with status 1 if a request was not completed.
    """
    try:
        from loadtest.bench import BenchOptions, bench, is_complete, report_text, say
        from loadtest.peers.catalogue import parse_opponent
        from loadtest.workloads.requests import DEFAULT_WORKLOAD, Arrivals
        from loadtest.targets.target import Target
        from loadtest.turns import DEFAULT_LOAD, Schedule
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing

    _check_arrivals(arrivals, rate, load)
    options = BenchOptions(
        target=Target(target),
        workload=workload or DEFAULT_WORKLOAD,
        schedule=Schedule(Arrivals(arrivals), rate, load or DEFAULT_LOAD),
        opponents={name: parse_opponent(name) for name in map(str.strip, peers.split(",")) if name},
        num_rounds=runs,
        json_path=json_path,
    )
    # Every system must do the same work.
    settings = flags.load(forced={"prefix_sharing": PrefixSharing.OFF})
    with _ended_by_sigterm():
        report = bench(options, settings, say)
    click.echo(report_text(report))
    if not is_complete(report):
        raise SystemExit(FAILED)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: everything that was started is ended first."""

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)  # whose handler may be that of an event loop, which ends its tasks first

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_arrivals(arrivals: str, rate: float | None, load: float | None) -> None:
    if arrivals != "poisson" and (rate or load):
        raise click.UsageError("--rate and --load are for --arrivals poisson")
    if rate and load:
        raise click.UsageError("--rate and --load exclude each other")
