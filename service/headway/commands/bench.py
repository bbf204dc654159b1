"""`headway bench`: measure this machine, and compare with other systems."""

from __future__ import annotations

from pathlib import Path

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags
from headway.commands.statuses import FAILED
from headway.core.errors import HeadwayError
from headway.core.scheduler_config import PrefixSharing

ANY_PORT = "127.0.0.1:0"
PEERS = ("vllm", "llamacpp", "llamacpp-q8", "transformers")


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
    help="burst: all requests at once. poisson: at random moments, --rate of them a second.",
)
@click.option("--rate", type=float, help="Requests per second, for --arrivals poisson.")
@click.option(
    "--peers", default="", metavar="NAME,...", help=f"Systems to compare with, in turns: any of {', '.join(PEERS)}."
)
@click.option("--runs", type=click.IntRange(1), help="Runs of each system. Default: 1, with peers 3.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
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
    peers: str,
    runs: int | None,
    json_path: Path | None,
) -> None:
    """Measure throughput and latencies with a workload of exact lengths, and how far from the machine's floor they are.

    Exits with status 1 if a request was not completed.
    """
    try:
        from loadtest.bench import BenchOptions, bench, is_complete, report_text, say, write_report
        from loadtest.peers.process import Peer
        from loadtest.requests import DEFAULT_WORKLOAD, Arrivals
        from loadtest.systems import Target
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing

    options = BenchOptions(
        target=Target(target),
        workload=workload or DEFAULT_WORKLOAD,
        arrivals=Arrivals(arrivals),
        rate=rate,
        peers=tuple(Peer(name) for name in _peer_names(peers)),
        num_runs=runs,
    )
    # Every system must do the same work, and nobody else's ports are taken.
    settings = flags.load(defaults={"lease_listen": ANY_PORT}, forced={"prefix_sharing": PrefixSharing.OFF})
    report = bench(options, settings, say)
    if json_path is not None:
        write_report(report, json_path)
    click.echo(report_text(report))
    if not is_complete(report):
        raise SystemExit(FAILED)


def _peer_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(PEERS)}", param_hint="--peers")
    return names
