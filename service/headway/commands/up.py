"""`headway up`: everything on this machine, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headway.commands.flags import SettingFlags, SettingsCommand, is_connection, setting_flags
from headway.core.errors import HeadwayError, SettingError
from headway.settings import SettingField, Settings

if TYPE_CHECKING:
    from headway.broker.errors import EmbeddedNatsFailed
    from headway.roles.local import LocalRole
    from headway.roles.queue import QueueRole
    from headway.roles.worker import WorkerRole

NATS_PORT = 4222
ADDRESS_IN_USE = "address already in use"
WELCOME = """
Headway is up: NATS at {url}, model {model} ({loaded})
queue:  {queue}
worker: {worker}

Submit a first job, in another terminal:

    headway submit{address} --temperature 0 "Why is the sky blue?"

or with any NATS client (the tokens come on headway.results.acme.a1):

    nats pub --server {url} headway.jobs.{model}.acme \\
        '{{"id": "a1", "prompt": "Once upon a time", "max_tokens": 32}}'

Ctrl-C ends it; jobs that wait are kept in {folder}.
"""


def _is_set_here(setting: SettingField) -> bool:
    """The one NATS and the one queue are our own, so nobody has to say where they are."""
    return is_connection(setting) or setting.name in ("lease_address", "lease_advertised_address")


@click.command("up", cls=SettingsCommand)
@click.option("--data-folder", type=click.Path(path_type=Path), help="Where NATS keeps jobs and results.")
@click.option("--nats-port", type=click.IntRange(0, 65535), default=NATS_PORT, show_default=True, help="0: a free one.")
@setting_flags(
    "engine", "scheduler", "queue", "broker", "lease", "lease_terms", "roles", "telemetry", without=_is_set_here
)
def command(flags: SettingFlags, data_folder: Path | None, nats_port: int) -> None:
    """Everything on this machine: NATS, the queue and a worker, until Ctrl-C.

    The same code over the same wire as in a cluster. Jobs and results are kept in the data folder (by default headway
    in the user's state folder) from one start to the next.
    """
    from headway.broker.errors import EmbeddedNatsFailed
    from headway.telemetry.logs import configure_logs

    settings = flags.load(defaults={"log_level": "warning"})
    configure_logs(settings.telemetry)
    try:
        asyncio.run(_up(settings, data_folder or default_data_folder(), nats_port))
    except EmbeddedNatsFailed as error:
        raise _explained(error, nats_port) from error


def default_data_folder() -> Path:
    """As the XDG base directory specification has it."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headway"


async def _up(settings: Settings, data_folder: Path, nats_port: int) -> None:
    from headway.commands.running import serve
    from headway.roles.local import LocalRole

    local = LocalRole(settings, data_folder / "nats", nats_port, on_stage=_say)
    await serve(local, lambda local: _say(_welcome(local, settings.engine.served_model)))
    _say("Headway has stopped.")


def _say(text: str) -> None:
    """If anybody still listens: the end must be as good when the terminal has been closed."""
    with suppress(OSError):
        click.echo(text)


def _welcome(local: LocalRole, model: str) -> str:
    ready = local.worker.ready
    return WELCOME.format(
        url=local.nats.url,
        model=model,
        loaded=f"{ready.model_id} on {ready.device}" if ready else "starting again",
        queue=_addresses(local.queue),
        worker=_addresses(local.worker),
        address="" if local.nats.port == NATS_PORT else f" --nats-url {local.nats.url}",
        folder=local.nats.folder,
    )


def _addresses(role: QueueRole | WorkerRole) -> str:
    return f"metrics at http://{role.telemetry.metrics.address}/metrics, probes at {role.health.address}"


def _explained(error: EmbeddedNatsFailed, nats_port: int) -> HeadwayError:
    """The failures that happen to everybody have a name and a way out."""
    from headway.broker.errors import FolderInUse

    if isinstance(error, FolderInUse):
        fix = "another nats-server uses it: another headway up? End that, or give others: "
        fix += "--data-folder, --nats-port and --lease-listen"
        return SettingError("--data-folder", str(error.folder.parent), fix)
    if ADDRESS_IN_USE not in error.log:
        return error
    return SettingError("--nats-port", nats_port, "another program listens there; choose another port, or 0 for any")
