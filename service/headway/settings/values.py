"""Reads what a person writes for a value; pydantic then checks its type.

    text for anything      ``none`` or ``null`` where the setting may be None
    sizes in bytes         ``2GiB``, ``512 MiB``, ``1.5GB``; a plain number is bytes
    mappings               ``{"acme": 2}`` or ``acme=2,zeta=1``
    lists                  ``["a", "b"]`` or ``a,b``
    the word off           without quotes in YAML too, which reads it as no

The short forms are for flags and variables; a YAML file has mappings and lists of its own.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping
from typing import Any

from headway.settings.fields import SettingField

SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]i?)?[bB]?\s*")
FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
LISTS = (list, tuple, set, frozenset)


def read_value(setting: SettingField, value: Any) -> Any:
    """What ``value`` means for this setting. Raises ``ValueError`` with the way out."""
    if isinstance(value, bool) and bool not in setting.alternatives:
        return _read_word(setting, value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if setting.is_optional and text.lower() in ("none", "null"):
        return None
    if setting.is_size and SIZE.fullmatch(text):
        return parse_size(text)
    return _read_collection(setting, text) if _collection_of(setting) else value


def _read_word(setting: SettingField, value: bool) -> str:
    """YAML 1.1 takes the words on and off for yes and no; where they are the setting's choices, they were meant."""
    word = "on" if value else "off"
    if word not in (setting.choices or ()):
        raise ValueError("is a yes or no; put text in quotes")
    return word


def parse_size(text: str) -> int:
    """Bytes of ``2GiB`` (binary), ``2GB`` (decimal) or ``2048``. Raises ``ValueError`` for anything else."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 2GiB, 512MiB or 1000000")
    number, unit = match.groups()
    return int(float(number) * FACTORS[(unit or "").lower()])


def _collection_of(setting: SettingField) -> type | None:
    """The container that the setting holds, if it holds one."""
    for alternative in setting.alternatives:
        origin = typing.get_origin(alternative) or alternative
        if isinstance(origin, type) and issubclass(origin, (*LISTS, Mapping)):
            return origin
    return None


def _read_collection(setting: SettingField, text: str) -> Any:
    if text[:1] in ("{", "["):
        return _parse_json(text)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    container = _collection_of(setting)
    if container is None or not issubclass(container, Mapping):
        return parts
    return dict(_parse_pair(part) for part in parts)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at character {error.pos + 1})") from error


def _parse_pair(part: str) -> list[str]:
    name, separator, value = part.partition("=")
    if not separator:
        raise ValueError(f"{part!r} has no '='; write for example acme=2,zeta=1, or JSON")
    return [name.strip(), value.strip()]
