"""`headway bench`: measure this machine, and compare with other systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from headway.commands import bench_compare, bench_report
from headway.commands.bench_queue import bench_the_queue, leave_if_stopped, queue_options, take_queue_options
from headway.commands.bench_settings import refuse_unused_flags
from headway.commands.command_line import command_line
from headway.commands.flags import SettingFlags, SettingsGroup, setting_flags
from headway.commands.numbers import ABOVE_ZERO
from headway.commands.running import sigterm_as_ctrl_c
from headway.commands.statuses import FAILED
from headway.core.errors import HeadwayError
from headway.core.scheduler_config import PrefixSharing

PEERS = (
    "vllm, llamacpp[:bf16|q8_0|file][:SLOTS], transformers, transformers:static[:ROWS], another target, "
    "TARGET+SETTING=VALUE+... for other settings, or "
    "NAME=URL[#MODEL] for a server as of --target openai"
)


@click.group("bench", cls=SettingsGroup, invoke_without_command=True, subcommand_metavar="[COMMAND ...]")
@click.option(
    "--target",
    type=click.Choice(["engine", "static", "nats", "openai", "queue"]),
    default="engine",
    show_default=True,
    help="engine: the engine alone. static: the same with static batches. nats: client, NATS, queue, worker and "
    "engine. openai: a server with OpenAI's protocol, at --url. queue: the queue alone, with many jobs waiting and "
    "workers that end them at once.",
)
@click.option("--url", metavar="URL", help="For openai: where its /completions is, like http://127.0.0.1:8000/v1.")
@click.option("--served-model", metavar="NAME", help="For openai: the model to ask. Default: the first that it lists.")
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A workload file. Default: 64 requests of 16 to 256 prompt and 8 to 256 output tokens.",
)
@click.option("--scenario", metavar="NAME|FILE", help="A scenario, by name or as a YAML file, instead of a workload.")
@click.option("--list-scenarios", is_flag=True, help="Only show the scenarios that have names.")
@click.option("--num-requests", type=click.IntRange(1), metavar="N", help="So many of the scenario's requests.")
@click.option("--seed", type=int, metavar="N", help="Of the scenario's random numbers.")
@click.option(
    "--arrivals",
    type=click.Choice(["burst", "poisson", "closed"]),
    help="burst: all requests at once. poisson: at random moments, at a mean rate. closed: so many clients, each of "
    "which waits for its answer. Default: the scenario's, or burst.",
)
@click.option("--rate", type=ABOVE_ZERO, help="For poisson: requests per second, the same for every system.")
@click.option(
    "--load",
    type=ABOVE_ZERO,
    help="For poisson without --rate: share of each system's own capacity, which a burst measures first. Default: 0.6.",
)
@click.option("--concurrency", type=click.IntRange(1), metavar="N", help="For closed: the number of clients.")
@click.option("--slo", metavar="ttft=X,tpot=X,e2e=X", help="What is promised, in seconds: goodput is what kept it.")
@click.option(
    "--timeout",
    type=ABOVE_ZERO,
    metavar="SECONDS",
    help="For nats and openai: when a request counts as lost, from when it was due. Default: 3600.",
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
@click.option(
    "--html",
    "html_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Where to write the report as a page with tables and plots: one file that needs nothing else.",
)
@queue_options
@setting_flags(
    *("engine", "scheduler", "queue", "broker", "lease", "lease_terms", "roles", "telemetry"),
    without=lambda setting: setting.name == "served_model",  # clients and worker agree on it anyway
)
def command(flags: SettingFlags, list_scenarios: bool, target: str, peers: str, **given: Any) -> None:
    """Measure throughput and latencies with requests of exact lengths, and how far from the machine's floor they are.

    Exits with status 1 if a request was neither completed nor cancelled on purpose. Ctrl-C keeps the rounds that are
    whole.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return  # click calls a group's function before that of its subcommand
    _need_loadtest(with_page=given["html_path"] is not None)
    queue_load = take_queue_options(given, target, peers)
    names = tuple(name for name in map(str.strip, peers.split(",")) if name)
    refuse_unused_flags(flags, target, names)
    if list_scenarios:
        _show_scenarios()
        return
    if target == "queue":
        with sigterm_as_ctrl_c():
            bench_the_queue(flags, queue_load, given["json_path"])
        return
    from loadtest.arguments import Arguments, options_of
    from loadtest.bench import bench, is_complete, report_text, say
    from loadtest.screen import watching

    _check(target, names, **given)
    options = options_of(Arguments(target=target, peers=names, **given))
    # Every system must do the same work.
    forced = {} if options.shares_prefixes else {"prefix_sharing": PrefixSharing.OFF}
    settings = flags.load(forced=forced)
    hidden = {each.setting.name for each in settings.describe() if each.is_hidden}
    options = replace(options, command=command_line(click.get_current_context(), hidden))
    with sigterm_as_ctrl_c(), watching() as watch:
        report = bench(options, settings, say, watch)
    click.echo(report_text(report))
    leave_if_stopped(report["stopped_by"])
    if not is_complete(report):
        raise SystemExit(FAILED)


def _show_scenarios() -> None:
    from loadtest.workloads.scenario_files import list_scenarios

    scenarios = list_scenarios()
    width = max(map(len, scenarios))
    for name, description in scenarios.items():
        click.echo(f"{name:{width}}  {description}")


def _need_loadtest(with_page: bool = False) -> None:
    """What is missing is better known before the runs."""
    try:
        import loadtest.bench

        if with_page:
            import loadtest.page.write  # noqa: F401 (whether it is installed)
    except ModuleNotFoundError as missing:
        raise HeadwayError(f"{missing.name} is not installed; run: pip install 'headway[bench]'") from missing


def _check(target: str, peers: tuple[str, ...], **given: Any) -> None:
    """What goes together whatever a scenario says."""
    rate, load, arrivals = given["rate"], given["load"], given["arrivals"]
    has_scenario = given["scenario"] is not None
    if rate and load:
        raise click.UsageError("--rate and --load exclude each other")
    if (rate or load) and arrivals != "poisson" and (arrivals or not has_scenario):
        raise click.UsageError("--rate and --load are for --arrivals poisson")
    if given["concurrency"] and arrivals != "closed" and (arrivals or not has_scenario):
        raise click.UsageError("--concurrency is for --arrivals closed")
    if arrivals == "closed" and not given["concurrency"]:
        raise click.UsageError("--arrivals closed needs --concurrency, the number of clients")
    if has_scenario and given["workload"] is not None:
        raise click.UsageError("--scenario and --workload exclude each other")
    if not has_scenario and (given["num_requests"] or given["seed"] is not None):
        raise click.UsageError("--num-requests and --seed are for --scenario")
    if (target == "openai") != (given["url"] is not None):
        raise click.UsageError("--target openai needs --url, and --url is for nothing else")
    if given["timeout"] and target in ("engine", "static") and not peers:
        raise click.UsageError("--timeout is for --target nats and openai")
    if given["served_model"] and target != "openai":
        raise click.UsageError("--served-model is for --target openai; --model is what the engine loads")


command.add_command(bench_report.command)
command.add_command(bench_compare.command)
