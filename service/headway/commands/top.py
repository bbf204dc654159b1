"""`headway top`: queue and workers as the leader sees them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Literal

import click

from headway.commands.connecting import connection_to
from headway.commands.flags import SettingFlags, SettingsCommand, connection_flags
from headway.commands.numbers import Finite
from headway.core.status import ModelStatus, QueueStatus, WorkerStatus

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from headway.broker.config import BrokerConfig

MAX_TENANTS_SHOWN = 6
NAMES = ("model", "worker", "waiting by tenant")
"""Columns of names, which may be long."""
UNKNOWN = "–"


@click.command("top", cls=SettingsCommand)
@click.option("--once", is_flag=True, help="Show the state once and end (also if the output is no terminal).")
@click.option("--json", "as_json", is_flag=True, help="Once, as one JSON object.")
@click.option("--interval", type=Finite(min=0.1), default=1.0, show_default=True, help="Seconds.")
@connection_flags()
def command(flags: SettingFlags, once: bool, as_json: bool, interval: float) -> None:
    """Watch queue and workers: what waits, for how long and whose it is; what runs, and how fast; and the last five
    minutes of it. Ctrl-C ends it."""
    from headway.commands.running import run_interruptibly

    config = flags.load().broker
    if as_json or once or not sys.stdout.isatty():
        status = run_interruptibly(_ask(config))
        _print_json(status) if as_json else _print_tables(status)
    else:
        with contextlib.suppress(click.exceptions.Exit):  # being interrupted is how watching ends
            run_interruptibly(_watch(config, interval))


async def _ask(config: BrokerConfig) -> QueueStatus:
    from headway.broker.control import request_status

    async with connection_to(config, "headway top") as connection:
        return await request_status(connection, config.nats_timeout_seconds)


async def _watch(config: BrokerConfig, interval: float) -> None:
    """Until a signal. A queue that does not answer is something to see, no reason to end."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from headway.broker.control import request_status
    from headway.commands.history import History
    from headway.commands.history_view import HistoryView
    from headway.core.errors import BrokerError

    history, timeout = History(), config.nats_timeout_seconds
    async with connection_to(config, "headway top") as connection:
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                shown: Group | Text
                try:
                    status = await request_status(connection, timeout)
                    history.add(status, time.monotonic())
                    shown = tables(status)
                except BrokerError as error:
                    shown = Text(f"{error}\n")
                live.update(Group(shown, HistoryView(history, time.monotonic(), interval)), refresh=True)
                await asyncio.sleep(interval)


def _print_json(status: QueueStatus) -> None:
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(status)))


def _print_tables(status: QueueStatus) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(tables(status))


def tables(status: QueueStatus) -> Group:
    """A line on the leader, a row for each model, a row for each worker."""
    from rich.console import Group

    state = "granting" if status.is_granting else "waiting for workers to say what they run"
    return Group(f"leader epoch {status.epoch}, {state}", _models(status.models), _workers(status.workers))


def _models(models: tuple[ModelStatus, ...]) -> Table:
    columns = ("model", "waiting", "leased", "oldest\nwait", "backlog\ntokens", "workers\nneeded", "waiting by tenant")
    table = _table(*columns)
    for model in models:
        queue = model.queue
        table.add_row(
            model.model,
            str(model.num_waiting_jobs),
            str(model.num_leased_jobs),
            f"{queue.oldest_wait_seconds:.1f} s",
            str(queue.num_backlog_tokens),
            UNKNOWN if model.workers_needed is None else f"{model.workers_needed:.2f}",
            _by_tenant(model),
        )
    return table


def _by_tenant(model: ModelStatus) -> str:
    tenants = sorted(model.queue.num_waiting_by_tenant.items(), key=lambda item: -item[1])
    names = [f"{tenant} {count}" for tenant, count in tenants[:MAX_TENANTS_SHOWN]]
    if len(tenants) > MAX_TENANTS_SHOWN:
        names.append(f"and {len(tenants) - MAX_TENANTS_SHOWN} more")
    return ", ".join(names)


def _workers(workers: tuple[WorkerStatus, ...]) -> Table:
    from rich.markup import escape

    table = _table("worker", "model", "state", "held", "sequences", "free pages", "step")
    for worker in workers:
        load = worker.load
        table.add_row(
            escape(worker.name),
            worker.model,
            "connected" if worker.is_connected else "lost",
            str(worker.num_held_jobs),
            _of(None if load is None else load.num_running, worker.max_num_seqs),
            _of(None if load is None else load.num_free_pages, worker.capacity.num_pages),
            UNKNOWN if load is None else f"{load.step_seconds * 1000:.0f} ms",
        )
    return table


def _of(number: int | None, most: int) -> str:
    return f"{UNKNOWN if number is None else number}/{most}"


def _table(*columns: str) -> Table:
    """Names may be long and are cut or wrapped in a narrow terminal; states and numbers never are."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        is_name = column in NAMES
        justify: Literal["left", "right"] = "left" if is_name or column == "state" else "right"
        table.add_column(column, justify=justify, no_wrap=not is_name, overflow="fold" if is_name else "ellipsis")
    return table
