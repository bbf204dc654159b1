"""`headway dead`: jobs that failed for good, for people to look at and to try again."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headway.commands.connecting import connection_to
from headway.commands.flags import SettingFlags, SettingsCommand, connection_flags
from headway.commands.job_names import JobName, shown
from headway.core.job import JobKey

if TYPE_CHECKING:
    from headway.broker.config import BrokerConfig
    from headway.broker.connection import Connection
    from headway.broker.dead import StoredDeadLetter

NAME = "headway dead"
PAGE_LETTERS = 500


@click.group("dead")
def command() -> None:
    """Look at jobs that failed for good, and queue them again.

    A job is here because it lost too many workers, because its id was taken by another job, or because its payload
    could not be read.
    """


@command.command("list", cls=SettingsCommand)
@click.option("--tenant", help="Those of this tenant alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with the payload.")
@connection_flags()
def list_command(flags: SettingFlags, tenant: str | None, as_json: bool) -> None:
    """List dead jobs, the oldest first."""
    from headway.commands.running import run_interruptibly

    letters = run_interruptibly(_read_all(flags.load().broker, tenant))
    for letter in letters:
        click.echo(json.dumps(_as_json(letter)) if as_json else _line(letter))
    if not letters and not as_json:
        click.echo("no dead jobs", err=True)


@command.command("show", cls=SettingsCommand)
@click.argument("job", metavar="TENANT/ID", type=JobName())
@connection_flags()
def show(flags: SettingFlags, job: JobKey) -> None:
    """Show what is known of a dead job, and its payload, as JSON.

    Several entries may have one id: a job that died, and others that came under its id.
    """
    from headway.commands.running import run_interruptibly

    for letter in run_interruptibly(_read_one(flags.load().broker, job)):
        click.echo(json.dumps(_as_json(letter), indent=2))


@command.command("requeue", cls=SettingsCommand, short_help="Queue dead jobs again, each with a new id.")
@click.argument("jobs", metavar="TENANT/ID...", type=JobName(), nargs=-1, required=True)
@connection_flags()
def requeue(flags: SettingFlags, jobs: tuple[JobKey, ...]) -> None:
    """Queue dead jobs again, each as a new job with a new id, which is printed.

    Of several entries with one id the newest is taken. The entries stay where they are.
    """
    from headway.commands.running import run_interruptibly

    run_interruptibly(_requeue(flags.load().broker, jobs))


async def _read_all(config: BrokerConfig, tenant: str | None) -> list[StoredDeadLetter]:
    from headway.broker.dead import DeadLetters

    letters: list[StoredDeadLetter] = []
    async with connection_to(config, NAME) as connection:
        dead = DeadLetters(connection)
        while True:
            following = letters[-1].sequence + 1 if letters else 1
            page = await dead.read(tenant, following, PAGE_LETTERS)
            if not page:
                return letters
            letters += page


async def _read_one(config: BrokerConfig, job: JobKey) -> list[StoredDeadLetter]:
    async with connection_to(config, NAME) as connection:
        return await _found(connection, job)


async def _requeue(config: BrokerConfig, jobs: tuple[JobKey, ...]) -> None:
    from headway.broker.client import SUBMIT_SECONDS
    from headway.broker.dead import requeued
    from headway.broker.job_publish import publish_job

    async with connection_to(config, NAME) as connection:
        for job in jobs:
            letter = (await _found(connection, job))[-1].letter
            again = requeued(letter)
            await publish_job(connection, again.publication, SUBMIT_SECONDS)
            click.echo(f"{shown(job)}: queued again as {shown(again.key)}")


async def _found(connection: Connection, job: JobKey) -> list[StoredDeadLetter]:
    """At least one."""
    from headway.broker.dead import DeadLetters

    letters = await DeadLetters(connection).show(job)
    if not letters:
        raise click.ClickException(f"{shown(job)}: is not among the dead jobs; `headway dead list` shows them")
    return letters


def _line(letter: StoredDeadLetter) -> str:
    attempts = letter.letter.num_attempts
    tried = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    return f"{_time(letter)}  {shown(letter.letter.key)}  {letter.letter.model}  {tried}  {letter.letter.reason}"


def _as_json(letter: StoredDeadLetter) -> dict[str, Any]:
    """The payload as an object if it is one, else as text."""
    what = letter.letter
    return {
        "tenant": what.key.tenant,
        "id": what.key.id,
        "model": what.model,
        "reason": what.reason,
        "num_attempts": what.num_attempts,
        "died_at": _time(letter),
        "stream_sequence": what.stream_sequence,
        "payload": _payload(what.payload),
    }


def _payload(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode(errors="replace")


def _time(letter: StoredDeadLetter) -> str:
    return datetime.fromtimestamp(letter.died_at, UTC).isoformat(timespec="seconds")
