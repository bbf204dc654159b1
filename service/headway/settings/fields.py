"""Which settings there are: read off the packages' frozen dataclasses, with their docstrings as help.

A setting is declared once, as a field with a default and a docstring under it; its flag, its environment variable
and its key in the file follow from its name. Names are unique over all groups, since the first two have no group.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

RESERVED = frozenset({"config", "help", "version"})
"""Flags that mean something else."""


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting, as it is declared."""

    group: str
    name: str
    type: Any
    """The resolved annotation."""
    default: Any
    help: str
    is_secret: bool = False
    """Declared with ``repr=False``: its value is never shown."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "HEADWAY_" + self.name.upper()

    @property
    def key(self) -> str:
        """Its place in the YAML file."""
        return f"{self.group}.{self.name}"

    @property
    def is_size(self) -> bool:
        """Whether it counts bytes, so that ``2GiB`` means something."""
        return int in self.alternatives and ("bytes" in self.name or self.name.endswith("memory"))

    @property
    def alternatives(self) -> tuple[Any, ...]:
        """The members of a union, or the one type."""
        is_union = typing.get_origin(self.type) in (typing.Union, types.UnionType)
        return typing.get_args(self.type) if is_union else (self.type,)

    @property
    def is_optional(self) -> bool:
        return type(None) in self.alternatives

    @property
    def is_switch(self) -> bool:
        """A bare flag on the command line: ``--x`` or ``--no-x``."""
        return self.type is bool

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The values of an enum, for the command line's help; None if any value may be given."""
        enums = [kind for kind in self.alternatives if isinstance(kind, type) and issubclass(kind, Enum)]
        return tuple(str(member.value) for kind in enums for member in kind) or None


def fields_of(groups: Mapping[str, type]) -> tuple[SettingField, ...]:
    """Every setting of these dataclasses, in order of declaration.

    Raises ``TypeError`` if two share a name, or one has no default or a reserved name: a mistake of ours.
    """
    found = [setting for group, cls in groups.items() for setting in _fields_of_group(group, cls)]
    seen: dict[str, SettingField] = {}
    for setting in found:
        other = seen.setdefault(setting.name, setting)
        if other is not setting:
            raise TypeError(f"{other.key} and {setting.key} would share the flag {setting.flag}")
        if setting.name in RESERVED:
            raise TypeError(f"{setting.key}: the flag {setting.flag} means something else")
    return tuple(found)


def _fields_of_group(group: str, cls: type) -> list[SettingField]:
    hints = typing.get_type_hints(cls)
    help_texts = attribute_docstrings(cls)
    return [
        SettingField(
            group=group,
            name=field.name,
            type=hints[field.name],
            default=_default_of(cls, field),
            help=help_texts.get(field.name, ""),
            is_secret=not field.repr,
        )
        for field in dataclasses.fields(cls)
        if field.init
    ]


def _default_of(cls: type, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{cls.__name__}.{field.name} has no default")


def attribute_docstrings(cls: type) -> dict[str, str]:
    """The string below each annotated attribute, on one line; nothing where the source cannot be read."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            texts |= _docstrings_in(_class_body(base))
    return texts


def _class_body(cls: type) -> list[ast.stmt]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return []
    definition = tree.body[0]
    return definition.body if isinstance(definition, ast.ClassDef) else []


def _docstrings_in(body: list[ast.stmt]) -> dict[str, str]:
    texts = {}
    for statement, following in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(following.value.value).split())
    return texts
