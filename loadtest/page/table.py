"""A table of the page: text, whatever it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Each row begins with what it is about."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    is_text: bool = False
    """Not numbers, which stand to the right."""


def names_in(maps: Iterable[Mapping[str, Any]]) -> dict[str, None]:
    """All keys, in the order in which they first come."""
    return dict.fromkeys(name for found in maps for name in found)
