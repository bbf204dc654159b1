"""Settings as flags: read off the packages' dataclasses, and shown under their groups in a command's help.

    @click.command(cls=SettingsCommand)
    @setting_flags("engine", "scheduler")
    def command(flags: SettingFlags) -> None:
        settings = flags.load()

A command takes only the groups that it uses. The values stay as they were written until `Settings.load` reads them,
as it reads those of the environment and of the file, so that all three mean the same and are refused alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headway.settings import SettingField, Settings, list_settings

CONNECTION = "nats_"
"""What the names of the broker's connection settings begin with."""
HEADINGS = {
    "engine": "The engine",
    "scheduler": "The engine's scheduler",
    "queue": "The order of the queue",
    "broker": "NATS and its streams",
    "lease": "Between queue and workers",
    "lease_terms": "Leases",
    "roles": "The process",
    "telemetry": "Metrics, traces and logs",
}


@dataclass(frozen=True, slots=True)
class SettingFlags:
    """The settings that were given on the command line, as text."""

    given: Mapping[str, Any]
    """By field name; None: not given."""
    config_file: Path | None

    def load(self, defaults: Mapping[str, Any] | None = None, forced: Mapping[str, Any] | None = None) -> Settings:
        """The effective settings. ``defaults`` are the command's own, for what is given nowhere; ``forced`` win over
        everything. Raises ``SettingError``."""
        given = {**self.given, **(forced or {})}
        settings = Settings.load(given, config_file=self.config_file)
        missing = {name: value for name, value in (defaults or {}).items() if name not in settings.sources}
        return Settings.load({**given, **missing}, config_file=self.config_file) if missing else settings


class SettingOption(click.Option):
    """The flag of one setting."""

    def __init__(self, setting: SettingField) -> None:
        self.heading = HEADINGS.get(setting.group, setting.group)
        declaration = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}" if setting.is_switch else setting.flag
        metavar = None if setting.is_switch else _metavar(setting)
        super().__init__([declaration, setting.name], default=None, metavar=metavar, help=_help(setting))


class SettingsCommand(click.Command):
    """A command whose help shows its own options first, then each group of settings under its heading."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class SettingsGroup(SettingsCommand, click.Group):
    """Such a command that has subcommands too; its help shows them last, and its own options are not for them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        given = ParameterSource.COMMANDLINE
        before = [option for option in self.params if ctx.get_parameter_source(str(option.name)) is given]
        if before:
            raise click.UsageError(f"{before[0].opts[0]} is not for {name!r}", ctx)
        return name, command, rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


def setting_flags(*groups: str, without: Callable[[SettingField], bool] = lambda setting: False) -> Any:
    """Gives a command the flags of these groups and ``--config``, and its function one argument ``flags`` for them."""
    chosen = [setting for setting in list_settings() if setting.group in groups and not without(setting)]
    return _decorator(chosen)


def connection_flags() -> Any:
    """`setting_flags` of those who only talk to NATS."""
    return _decorator([setting for setting in list_settings() if setting.name.startswith(CONNECTION)])


def is_connection(setting: SettingField) -> bool:
    return setting.name.startswith(CONNECTION)


def _decorator(settings: list[SettingField]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_flags(*args: Any, config: Path | None, **values: Any) -> Any:
            given = {setting.name: values.pop(setting.name) for setting in settings}
            return function(*args, flags=SettingFlags(given, config), **values)

        options = [_config_option(), *(SettingOption(setting) for setting in settings)]
        return add_options(with_flags, options)

    return decorate


def add_options(function: Callable[..., Any], options: Sequence[click.Option]) -> Callable[..., Any]:
    """What a decorator of click would do for each of them; the first one stands first in the help."""
    params = [*getattr(function, "__click_params__", []), *reversed(options)]
    function.__click_params__ = params  # type: ignore[attr-defined]  # where click collects them, last to first
    return function


def _config_option() -> click.Option:
    return click.Option(
        ["--config"], type=click.Path(path_type=Path), help="YAML file with settings; also HEADWAY_CONFIG."
    )


def _metavar(setting: SettingField) -> str:
    if setting.choices:
        return "|".join(setting.choices)
    if setting.is_size:
        return "SIZE"
    kinds = [getattr(kind, "__origin__", kind) for kind in setting.alternatives if kind is not type(None)]
    return {int: "N", float: "X", dict: "NAME=X,…", tuple: "A,B,…"}.get(kinds[0], "TEXT")


def _help(setting: SettingField) -> str:
    default = setting.default.value if isinstance(setting.default, Enum) else setting.default
    if default in (None, {}) or setting.is_secret:
        return setting.help
    if setting.is_switch:
        default = "on" if default else "off"
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return f"{setting.help} [default: {default}]"
