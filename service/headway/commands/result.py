"""`headway result`: read a job's output later."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from headway.commands.connecting import client_of
from headway.commands.flags import SettingFlags, SettingsCommand, connection_flags
from headway.commands.job_names import JobName, shown
from headway.commands.job_output import Outcome, complain, print_json, print_stream
from headway.commands.numbers import ABOVE_ZERO
from headway.commands.patience import Patience
from headway.commands.statuses import FAILED
from headway.core.job import JobKey

if TYPE_CHECKING:
    from headway.broker.config import BrokerConfig


@click.command("result", cls=SettingsCommand)
@click.argument("job", metavar="TENANT/ID", type=JobName())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, once the job has ended.")
@click.option("--timeout", type=ABOVE_ZERO, default=60.0, show_default=True, help="Seconds to wait.")
@connection_flags()
def command(flags: SettingFlags, job: JobKey, as_json: bool, timeout: float) -> None:
    """Read the output of a job again, from its beginning.

    Any number of readers may do so until the results reach their age limit; a job that runs is followed. Without a
    tenant the job is one of the tenant "default". The status is 1 if the job did not come to its end.
    """
    from headway.commands.running import run_interruptibly

    outcome = run_interruptibly(_read(flags.load().broker, job, as_json, timeout))
    complain(outcome)
    if not outcome.is_complete:
        sys.exit(FAILED)


async def _read(config: BrokerConfig, job: JobKey, as_json: bool, seconds: float) -> Outcome:
    async with (
        client_of(config, job.tenant) as client,
        client.follow(job.id) as stream,
        Patience(client, job=job) as patience,
    ):
        try:
            async with asyncio.timeout(seconds):
                if not as_json:
                    return await print_stream(stream, patience.heard)
                outcome = Outcome(job, await stream.result())
        except TimeoutError:
            state = "it still runs" if patience.has_heard else "it waits, runs, or never was"
            raise click.ClickException(
                f"{shown(job)}: has not ended in {seconds:g} s; {state} (see --timeout)"
            ) from None
    print_json(outcome)
    return outcome
