"""Label selectors, as the autoscaler sends them: ``model=default``, ``model in (a,b),!canary``.

The grammar is that of Kubernetes' labels, equality-based and set-based. A label that is not there differs from every
value and is in no set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EXISTENCE = re.compile(rf"(!?)\s*({_KEY})")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")


class Operator(Enum):
    IN = auto()
    NOT_IN = auto()
    EXISTS = auto()
    ABSENT = auto()


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels


@dataclass(frozen=True, slots=True)
class Selector:
    """Holds if every requirement does; an empty one selects everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Raises ``ValueError`` naming the part that is none."""
    parts = [part.strip() for part in _COMMA_OUTSIDE.split(text)] if text.strip() else []
    return Selector(tuple(_requirement(part) for part in parts))


def _requirement(part: str) -> Requirement:
    if match := _EQUALITY.fullmatch(part):
        key, sign, value = match.groups()
        return Requirement(key, Operator.NOT_IN if sign == "!=" else Operator.IN, frozenset({value}))
    if match := _SET.fullmatch(part):
        key, word, inside = match.groups()
        values = [value.strip() for value in inside.split(",")]
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(key, Operator.IN if word == "in" else Operator.NOT_IN, frozenset(values))
    if match := _EXISTENCE.fullmatch(part):
        return Requirement(match[2], Operator.ABSENT if match[1] else Operator.EXISTS)
    raise ValueError(f"{part!r} is no requirement of a label selector")
