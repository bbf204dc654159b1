"""`headway worker`: one worker process and its engine."""

from __future__ import annotations

import asyncio

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags


@click.command("worker", cls=SettingsCommand)
@setting_flags("engine", "scheduler", "broker", "lease", "roles", "telemetry")
def command(flags: SettingFlags) -> None:
    """Run a worker: generate with one model on one device.

    SIGTERM stops it from taking jobs, lets it go on with those that it has for drain_seconds, and hands the rest back
    with everything kept that was delivered.
    """
    from headway.commands.running import Role, serve, started
    from headway.roles.worker import WorkerRole
    from headway.telemetry.logs import configure_logs

    settings = flags.load()
    configure_logs(settings.telemetry)

    async def run() -> None:
        role: Role = WorkerRole(settings)
        await serve(started(role), lambda _: None)

    asyncio.run(run())
