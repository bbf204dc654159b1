"""The command itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from headway.commands.demo.jobs import QUESTIONS, TENANT_WEIGHTS, demo_jobs
from headway.commands.flags import SettingFlags, SettingsCommand, is_connection, setting_flags
from headway.commands.statuses import FAILED
from headway.settings import SettingField

if TYPE_CHECKING:
    from headway.commands.demo.run import View

DEFAULTS = {
    "max_num_seqs": 8,
    "policy": "weighted-fair",
    "tenant_weights": TENANT_WEIGHTS,
    "kv_memory": "256MiB",
    "log_level": "warning",
}
"""Few slots, so that jobs really wait; every one of these is a flag."""
FORCED = {
    "batching": "continuous",
    "lease_listen": "127.0.0.1:0",
    "health_listen": "127.0.0.1:0",
    "metrics_listen": "127.0.0.1:0",
    "drain_seconds": 0.0,
}
"""Nothing of the demo may meet another process, and nothing is worth waiting for at its end."""


def _is_decided_here(setting: SettingField) -> bool:
    return is_connection(setting) or setting.name in FORCED


@click.command("demo", cls=SettingsCommand)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job, and last a summary.")
@click.option("--jobs", type=click.IntRange(min=1), default=len(QUESTIONS), show_default=True, help="How many jobs.")
@setting_flags("engine", "scheduler", "queue", "telemetry", without=_is_decided_here)
def command(flags: SettingFlags, as_json: bool, jobs: int) -> None:
    """Watch jobs of three tenants go through the whole of Headway, on this machine.

    A real NATS server, the queue and a worker start on free ports and in a temporary folder. All jobs are submitted at
    once; the tenants share the worker by their weights. Then come the figures of each job, and how well continuous
    batching used the worker, compared to static batching on the same jobs.
    """
    from headway.commands.demo.report import print_json, print_tables
    from headway.commands.demo.run import DemoRuns, run_demo
    from headway.commands.demo.view import LineView, LiveView, QuietView
    from headway.commands.running import run_interruptibly
    from headway.telemetry.logs import configure_logs

    settings = flags.load(DEFAULTS, FORCED)
    configure_logs(settings.telemetry)
    demo = DemoRuns.of(demo_jobs(jobs))
    view: View = QuietView() if as_json else LiveView(demo.runs) if sys.stdout.isatty() else LineView()
    with view:
        run_interruptibly(run_demo(settings, demo, view))
    (print_json if as_json else print_tables)(demo, settings.scheduler)
    if demo.num_completed < len(demo.runs):
        sys.exit(FAILED)
