"""`headway streams`: look at the streams in NATS, or make them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headway.commands.connecting import connection_to
from headway.commands.flags import SettingFlags, SettingsCommand, setting_flags
from headway.commands.statuses import FAILED
from headway.settings import SettingField

if TYPE_CHECKING:
    from headway.broker.config import BrokerConfig
    from headway.broker.streams import StreamReport


def _is_decided_here(setting: SettingField) -> bool:
    return setting.name == "create_streams"


@click.group("streams")
def command() -> None:
    """Check or create the streams in NATS."""


@command.command("check", cls=SettingsCommand, short_help="Say what is there, and what is wrong with it.")
@setting_flags("broker", without=_is_decided_here)
def check(flags: SettingFlags) -> None:
    """Say what is there, and whether it is as it must be; change nothing. The status is 1 if something is wrong."""
    _report(flags, may_create=False)


@command.command("create", cls=SettingsCommand)
@setting_flags("broker", without=_is_decided_here)
def create(flags: SettingFlags) -> None:
    """Create what is missing, and set the limits of what is there. The status is 1 if something is wrong."""
    _report(flags, may_create=True)


@dataclass(frozen=True, slots=True)
class Finding:
    stream: str
    is_right: bool
    words: str


def _report(flags: SettingFlags, may_create: bool) -> None:
    from headway.commands.running import run_interruptibly

    findings = run_interruptibly(_look(flags.load().broker, may_create))
    for finding in findings:
        click.echo(f"{'ok   ' if finding.is_right else 'WRONG'}  {finding.stream:<20} {finding.words}")
    if not all(finding.is_right for finding in findings):
        sys.exit(FAILED)


async def _look(config: BrokerConfig, may_create: bool) -> list[Finding]:
    from headway.broker.streams import ensure_stream, stream_specs

    async with connection_to(config, "headway streams") as connection:
        return [
            await _found(spec.name or "", ensure_stream(connection.js, spec, may_create))
            for spec in stream_specs(config)
        ]


async def _found(stream: str, looking: Awaitable[StreamReport]) -> Finding:
    from headway.broker.errors import BrokerRefused, StreamMismatch, StreamMissing

    try:
        report = await looking
    except (StreamMissing, StreamMismatch, BrokerRefused) as error:
        return Finding(stream, False, str(error))
    return Finding(stream, True, "created" if report.created else "limits updated" if report.updated else "is there")
