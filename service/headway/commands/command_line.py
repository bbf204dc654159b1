"""The command line as it was given, to be written down beside what came of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from typing import Any

import click
from click.core import ParameterSource

_PASSWORD = re.compile(r"://[^/\s@]*@")
"""Of an address, with the user's name."""


def command_line(context: click.Context, hidden: Collection[str] = ()) -> str:
    """A line for a shell, in the order of the help; ``hidden`` names parameters whose values are not shown."""
    words = context.command_path.split()
    for parameter in context.command.params:
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            value = context.params[str(parameter.name)]
            words += _words(parameter, "***" if parameter.name in hidden else value)
    return _PASSWORD.sub("://***@", shlex.join(words))


def _words(parameter: click.Parameter, value: Any) -> Iterator[str]:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        yield parameter.opts[0] if value else parameter.secondary_opts[0]
        return
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(parameter, click.Option):
            yield parameter.opts[0]
        yield str(each)
