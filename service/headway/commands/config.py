"""`headway config`: what a process would run with, and why."""

from __future__ import annotations

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags


@click.command("config", cls=SettingsCommand)
@click.option("--brief", is_flag=True, help="Without the explanation of each setting.")
@setting_flags(
    "engine", "scheduler", "queue", "broker", "lease", "lease_terms", "election", "roles", "cluster", "telemetry"
)
def command(flags: SettingFlags, brief: bool) -> None:
    """Show the effective settings as a file for --config.

    Behind each value that is no default stands where it comes from. Secrets are not shown.
    """
    click.echo(flags.load().to_yaml(with_help=not brief), nl=False)
