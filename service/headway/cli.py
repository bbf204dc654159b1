"""The command line: `headway COMMAND`.

A command's module is imported when the command is used, so that `headway --help` is there at once and no command
pays for what only another one needs. Errors that we raise on purpose become one line on stderr and an exit status:
1 for what failed, 2 for what was asked wrongly (`core.errors.InputError`), 130 for what was interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

import click

from headway.commands.statuses import FAILED, INTERRUPTED, status_of
from headway.core.errors import HeadwayError

COMMANDS = {
    "demo": "Watch jobs of three tenants go through the whole of Headway, on this machine.",
    "up": "Everything on this machine: NATS, the queue and a worker, until Ctrl-C.",
    "submit": "Send prompts, and show the answers as they are generated.",
    "result": "Read the output of a job again, from its beginning.",
    "cancel": "Cancel jobs.",
    "dead": "Look at jobs that failed for good, and queue them again.",
    "top": "Watch queue and workers.",
    "bench": "Measure this machine, and compare it with other systems.",
    "tune": "Find the settings that give the most throughput and keep a latency.",
    "queue": "Run the queue: order the jobs and lease them to workers.",
    "worker": "Run a worker: generate with one model on one device.",
    "streams": "Check or create the streams in NATS.",
    "config": "Show the effective settings as a file for --config.",
    "version": "Show the version.",
}
"""In the order of the help; each is the attribute ``command`` of the module of its name."""


class LazyGroup(click.Group):
    """Knows its commands by name, and imports the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"headway.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """With a word on what may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            nearest = get_close_matches(args[0], COMMANDS, n=1)
            if not nearest:
                raise
            raise click.UsageError(f"{error.message} Did you mean {nearest[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def headway() -> None:
    """Continuous batching for language models from a NATS queue.

    Every setting is a flag, an environment variable (--max-num-seqs is HEADWAY_MAX_NUM_SEQS) and a key of the YAML
    file that --config names; the first of them that is given counts. `headway config` lists them.

    The exit status is 0 if all went well, 1 if it did not, 2 if what was asked is wrong (an argument, a setting, a file
    that they name), and 130 if it was interrupted.
    """
    # Servers configure logs; elsewhere what went wrong is said once, by the error that ends the command.
    logging.getLogger("headway").addHandler(logging.NullHandler())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Never returns: exits with the status."""
    try:
        status = headway.main(args=arguments, prog_name="headway", standalone_mode=False)
    except click.ClickException as error:
        _show(error)
        sys.exit(error.exit_code)
    except HeadwayError as error:
        click.echo(f"headway: {error}", err=True)
        sys.exit(status_of(error))
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _forget_stdout()
        sys.exit(FAILED)
    sys.exit(status if isinstance(status, int) else 0)


def _show(error: click.ClickException) -> None:
    """As all our errors look; the usage comes before it if the command line itself is wrong."""
    if type(error).show not in (click.ClickException.show, click.UsageError.show):
        error.show()  # it has a form of its own, like the help for a command line without arguments
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    click.echo(f"headway: {error.format_message()}", err=True)


def _forget_stdout() -> None:
    """Whoever read our output has gone; the interpreter must not try to flush it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
