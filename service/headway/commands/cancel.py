"""`headway cancel`: end jobs early."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from headway.commands.connecting import connection_to
from headway.commands.flags import SettingFlags, SettingsCommand, connection_flags
from headway.commands.job_names import JobName, shown
from headway.commands.statuses import FAILED
from headway.core.job import JobKey
from headway.core.lease_actions import CancelAnswer, CancelOutcome

if TYPE_CHECKING:
    from headway.broker.config import BrokerConfig


@click.command("cancel", cls=SettingsCommand)
@click.argument("jobs", metavar="TENANT/ID...", type=JobName(), nargs=-1, required=True)
@connection_flags()
def command(flags: SettingFlags, jobs: tuple[JobKey, ...]) -> None:
    """Cancel jobs.

    Returns once the end of each is stored. Without a tenant the job is one of the tenant "default". The status is 1 if
    a job is not known.
    """
    from headway.commands.running import run_interruptibly

    answers = run_interruptibly(_cancel(flags.load().broker, jobs))
    for answer in answers:
        click.echo(f"{shown(answer.key)}: {_outcome(answer)}")
    if any(answer.outcome is CancelOutcome.NOT_FOUND for answer in answers):
        sys.exit(FAILED)


async def _cancel(config: BrokerConfig, jobs: tuple[JobKey, ...]) -> list[CancelAnswer]:
    from headway.broker.control import request_cancel

    async with connection_to(config, "headway cancel") as connection:
        return [await request_cancel(connection, key) for key in jobs]


def _outcome(answer: CancelAnswer) -> str:
    if answer.outcome is CancelOutcome.ENDED:
        return f"had ended ({answer.finish_reason})"
    return answer.outcome.value.replace("_", " ")
