"""`headway queue`: one process of the queue."""

from __future__ import annotations

import asyncio

import click

from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags


@click.command("queue", cls=SettingsCommand)
@setting_flags("queue", "broker", "lease", "lease_terms", "election", "roles", "cluster", "telemetry")
def command(flags: SettingFlags) -> None:
    """Run the queue: order the jobs and lease them to workers.

    Of several such processes one leads; the others stand by and take over when it is gone. Everything that lasts is in
    NATS. SIGTERM ends it and leaves the jobs that wait to the next one.
    """
    from headway.commands.running import Role, serve, started
    from headway.roles.queue import QueueRole
    from headway.telemetry.logs import configure_logs

    settings = flags.load()
    configure_logs(settings.telemetry)

    async def run() -> None:
        role: Role = QueueRole(settings)
        await serve(started(role), lambda _: None)

    asyncio.run(run())
