"""Prints effective settings as YAML that can be fed back."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import yaml

from headway.settings.fields import SettingField
from headway.settings.loader import DEFAULT

HELP_COLUMNS = 84


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting, its effective value and where that was written."""

    setting: SettingField
    value: Any
    source: str
    """``flag``, ``environment``, the path of the file, or ``default``."""

    @property
    def is_hidden(self) -> bool:
        """Whether the value holds a secret: a secret setting, or an address with a password in it."""
        if self.value is None:
            return False
        return self.setting.is_secret or (isinstance(self.value, str) and _has_password(self.value))

    @property
    def shown(self) -> Any:
        """The value for people and machines: plain YAML types, ``***`` for a secret."""
        return "***" if self.is_hidden else _plain(self.value)


def to_yaml(values: Sequence[SettingValue], with_help: bool = False) -> str:
    """One mapping per group. A secret is a comment, so that the text still works as a file beside its variable."""
    lines: list[str] = []
    for group, members in groupby(values, key=lambda value: value.setting.group):
        lines.append(f"{group}:")
        for value in members:
            lines += _help_lines(value.setting) if with_help else []
            lines.append(_line(value))
    return "\n".join(lines) + "\n"


def _line(value: SettingValue) -> str:
    origin = "" if value.source == DEFAULT else f"  # {value.source}"
    if value.is_hidden:
        return f"  # {value.setting.name}: ***{origin}"
    return f"  {value.setting.name}: {_inline(value.shown)}{origin}"


def _help_lines(setting: SettingField) -> list[str]:
    return [f"  # {line}" for line in textwrap.wrap(setting.help, width=HELP_COLUMNS)]


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _has_password(text: str) -> bool:
    return any("://" in part and urlsplit(part.strip()).password is not None for part in text.split(","))
