"""`headway submit`: prompts in, answers out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from headway.commands.connecting import client_of
from headway.commands.flags import SettingFlags, SettingsCommand, connection_flags
from headway.commands.job_fields import check_id, check_values, given_fields, job_options
from headway.commands.job_files import JobRequest, PromptStyle, read_requests
from headway.commands.job_names import DEFAULT_TENANT, shown
from headway.commands.job_output import Outcome, complain, print_json, print_stream
from headway.commands.patience import Patience
from headway.commands.statuses import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.broker.client import Client
    from headway.broker.config import BrokerConfig

MAX_TITLE_CHARACTERS = 70


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the jobs go, and as whose."""

    broker: BrokerConfig
    tenant: str
    model: str

    def client(self) -> AbstractAsyncContextManager[Client]:
        return client_of(self.broker, self.tenant, self.model)


@click.command("submit", cls=SettingsCommand)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@click.option("--file", "file", type=click.File(encoding="utf-8"), help="Prompts, or jobs, one per line; - is stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per job.")
@click.option("--raw", is_flag=True, help="Give a prompt to the model as it is, not as a chat message.")
@click.option("--system", metavar="TEXT", help="The first message of the chat.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True, help="Whose jobs they are.")
@click.option("--model", help="Served name of the model. [default: served_model of the settings, else default]")
@click.option("--id", "job_id", help="Id of the job, if it is one; a random one otherwise.")
@click.option("--detach", is_flag=True, help="Print the jobs' names and end; read the output with `headway result`.")
@click.option(
    "--max-in-flight", type=click.IntRange(min=1), default=1024, show_default=True, help="Jobs at the same time."
)
@job_options
@connection_flags()
def command(
    flags: SettingFlags,
    prompts: tuple[str, ...],
    file: TextIO | None,
    as_json: bool,
    raw: bool,
    system: str | None,
    tenant: str,
    model: str | None,
    job_id: str | None,
    detach: bool,
    max_in_flight: int,
    **fields: Any,
) -> None:
    """Send prompts, and show the answers as they are generated.

    A prompt is sent as the user's message of a chat, unless --raw says that it is the model's input itself. Prompts are
    arguments, or the lines of --file or of standard input; a line that begins with { is a job in JSON with any of a
    job's fields, to which the flags add what it lacks.

    One answer comes as it is generated; several come in the order of their prompts. While the queue is full, jobs are
    offered again. Ctrl-C cancels what has not ended. The status is 1 if a job did not come to its end.
    """
    from headway.commands.running import run_interruptibly

    check_id(job_id, "--id")
    check_values(fields := given_fields(fields))
    options = fields | ({"id": job_id} if job_id else {})
    requests = read_requests(prompts, file, PromptStyle(raw, system), options)
    if job_id and len(requests) > 1:
        raise click.UsageError("--id names one job; these are several")
    settings = flags.load()
    destination = Destination(settings.broker, tenant, model or settings.engine.served_model)
    if detach:
        run_interruptibly(_detached(destination, requests))
    elif len(requests) == 1 and not as_json:
        _end([run_interruptibly(_one(destination, requests[0]))])
    else:
        _end(run_interruptibly(_many(destination, requests, max_in_flight, as_json)))


def _end(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        complain(outcome)
    if not all(outcome.is_complete for outcome in outcomes):
        sys.exit(FAILED)


async def _one(destination: Destination, request: JobRequest) -> Outcome:
    from headway.commands.submitting import Submitter

    async with (
        destination.client() as client,
        Patience(client, destination.model) as patience,
        Submitter(client) as submitter,
    ):
        return await print_stream(await submitter.start(request.fields), patience.heard)


async def _detached(destination: Destination, requests: Sequence[JobRequest]) -> None:
    """One after the other; what was named is stored, so an interruption leaves it."""
    from headway.commands.submitting import start

    async with destination.client() as client, Patience(client, destination.model) as patience:
        for request in requests:
            stream = client.submit(**request.fields)
            await start(stream)
            patience.heard()
            click.echo(shown(stream.key))
            await stream.aclose()


async def _many(
    destination: Destination, requests: Sequence[JobRequest], max_in_flight: int, as_json: bool
) -> list[Outcome]:
    """The incomplete ones; each is printed in its turn."""
    from headway.commands.submitting import Submitter

    incomplete: list[Outcome] = []
    titles = iter(enumerate((request.title for request in requests), start=1))

    with _progress(len(requests)) as advance:

        def on_outcome(outcome: Outcome) -> None:
            number, title = next(titles)
            print_json(outcome) if as_json else _print_answer(number, title, outcome)
            advance()
            patience.heard()
            if not outcome.is_complete:
                incomplete.append(outcome)

        async with (
            destination.client() as client,
            Patience(client, destination.model) as patience,
            Submitter(client) as submitter,
        ):
            await submitter.outcomes((request.fields for request in requests), max_in_flight, on_outcome)
    return incomplete


def _print_answer(number: int, title: str, outcome: Outcome) -> None:
    short = title if len(title) <= MAX_TITLE_CHARACTERS else title[: MAX_TITLE_CHARACTERS - 1] + "…"
    click.secho(f"[{number}] {short}", bold=True)
    click.echo(outcome.result.text.strip("\n") if outcome.result else "")
    click.echo()


def _progress(num_jobs: int) -> AbstractContextManager[Callable[[], None]]:
    """Shows on stderr, if that is a terminal, how many answers there are; gives the function that counts one."""
    return _progress_bar(num_jobs) if sys.stderr.isatty() else nullcontext(lambda: None)


@contextmanager
def _progress_bar(num_jobs: int) -> Iterator[Callable[[], None]]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("answers"), MofNCompleteColumn(), TimeElapsedColumn())
    # What goes to a file must not be led to the terminal; what goes to the terminal must not tear the bar.
    redirect = sys.stdout.isatty()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=redirect) as progress:
        task = progress.add_task("answers", total=num_jobs)
        yield lambda: progress.advance(task)
