"""`headway bench --target queue`: its own options, and what it runs (`loadtest.queue_load`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.commands.flags import SettingFlags, add_options
from headway.core.queue_config import QueuePolicy

if TYPE_CHECKING:
    from loadtest.queue_load.options import QueueLoad

PARTS = ("core", "intake", "serve", "records")
DEFAULT_PARTS = "core,intake,serve"
OPTIONS = (
    click.Option(
        ["--waiting"],
        type=click.IntRange(2),
        metavar="N",
        help="For queue: the most jobs that wait; every power of ten from 1000 up to it is measured too. "
        "Default: 100000.",
    ),
    click.Option(["--workers"], metavar="N,...", help="For queue: numbers of workers. Default: 1,8,64."),
    click.Option(["--policies"], metavar="NAME,...", help=f"For queue: policies. Default: {','.join(QueuePolicy)}."),
    click.Option(
        ["--parts"],
        metavar="NAME,...",
        help="For queue, what to measure: core (the state machine alone), intake, serve (jobs settled over the lease "
        f"stream), records (jobs with logs). Default: {DEFAULT_PARTS}.",
    ),
    click.Option(
        ["--served"],
        type=click.IntRange(1),
        metavar="N",
        help="For queue: jobs that each number of workers settles. Default: 5000.",
    ),
    click.Option(["--tenants"], type=click.IntRange(1), metavar="N", help="For queue: tenants. Default: 10."),
    click.Option(
        ["--payload-bytes"],
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        help="For queue: bytes of each job. Default: 256.",
    ),
)
NAMES = ("waiting", "workers", "policies", "parts", "served", "tenants", "payload_bytes")


def queue_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command these options."""
    return add_options(function, OPTIONS)


def take_queue_options(given: dict[str, Any], target: str, peers: str) -> dict[str, Any]:
    """Takes them out of what was given. They are for one target only, and the others are not for it."""
    taken = {name: value for name in NAMES if (value := given.pop(name)) is not None}
    if taken and target != "queue":
        raise click.UsageError(f"--{next(iter(taken)).replace('_', '-')} is for --target queue")
    others = [name for name, value in {**given, "peers": peers}.items() if value and name != "json_path"]
    if others and target == "queue":
        raise click.UsageError(f"--{others[0].removesuffix('_path').replace('_', '-')} is not for --target queue")
    return taken


def bench_the_queue(flags: SettingFlags, taken: Mapping[str, Any], json_path: Path | None) -> None:
    from loadtest.bench import say
    from loadtest.queue_load.bench import bench_queue
    from loadtest.queue_load.report import queue_report_text

    options = _load(taken, json_path)
    report = bench_queue(options, flags.load(), say)
    click.echo(queue_report_text(report))
    leave_if_stopped(report["stopped_by"])


def leave_if_stopped(stopped_by: str | None) -> None:
    """Of a measurement that did not come to its end: what there is of it has been shown."""
    from loadtest.errors import INTERRUPTED, BenchError

    if stopped_by == INTERRUPTED:
        raise KeyboardInterrupt
    if stopped_by is not None:
        raise BenchError(stopped_by)


def _load(taken: Mapping[str, Any], json_path: Path | None) -> QueueLoad:
    from loadtest.queue_load.options import Part, QueueLoad

    fields: dict[str, Any] = {"json_path": json_path}
    for name, field in {"waiting": "num_waiting", "served": "num_served", "tenants": "num_tenants"}.items():
        if name in taken:
            fields[field] = taken[name]
    if "payload_bytes" in taken:
        fields["payload_bytes"] = taken["payload_bytes"]
    for name, field, kind in (
        ("workers", "num_workers", _positive),
        ("policies", "policies", partial(_one_of, QueuePolicy)),
        ("parts", "parts", partial(_one_of, Part)),
    ):
        if name in taken:
            fields[field] = _several(name, taken[name], kind)
    return QueueLoad(**fields)


def _several(name: str, text: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    try:
        values = tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint=f"--{name}") from exc
    if not values:
        raise click.BadParameter("name at least one", param_hint=f"--{name}")
    return values


def _one_of(kind: type[StrEnum], text: str) -> StrEnum:
    if text not in list(kind):
        raise ValueError(f"{text!r} is none of {', '.join(kind)}")
    return kind(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{text} is not a whole number above 0")
    return int(text)
