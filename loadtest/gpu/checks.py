"""What is looked at, what it should be, and what came of it.

A part says beforehand which items it will measure. So a report has a line, and a place for each figure, for everything
that was meant to be run: what was not has none of its figures, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from loadtest.row import Aim

if TYPE_CHECKING:
    from loadtest.gpu.bench import Bench


class Verdict(StrEnum):
    PASSED = "ok"
    FAILED = "FAIL"
    MEASURED = "measured"
    """There is no aim that it could miss."""
    ABSENT = "absent"
    """It needs what is not there, and need not be."""
    NOT_RUN = "not run"
    """There was no time left."""

    @property
    def is_good(self) -> bool:
        return self not in (Verdict.FAILED, Verdict.NOT_RUN)


class AbsentError(Exception):
    """Something optional is not there; the message says what."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the report, before anything is known."""

    name: str
    figures: tuple[str, ...]
    """Names of what is measured, with the unit at their end. An aim is about the first one."""
    aim: Aim | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of an item."""

    name: str
    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    verdict: Verdict | None = None
    """None: the item's aim decides."""


@dataclass(frozen=True, slots=True)
class Check:
    """An item of a part with its verdict."""

    part: str
    item: Item
    verdict: Verdict
    figures: Mapping[str, float]
    note: str = ""

    @classmethod
    def of(cls, part: str, item: Item, finding: Finding) -> Check:
        return cls(part, item, _judge(item, finding), finding.figures, finding.note)

    def to_json(self) -> dict[str, object]:
        """Figures that are not known are None."""
        return {
            "part": self.part,
            "name": self.item.name,
            "verdict": self.verdict,
            "aim": None if self.item.aim is None else str(self.item.aim),
            "figures": {name: self.figures.get(name) for name in self.item.figures},
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Task:
    """An item that can be measured in any process."""

    item: Item
    compute: Callable[[], Mapping[str, float]]
    """Its figures; pickled. Raises `AbsentError` if they cannot be had here."""
    is_long: bool = False
    """It has a process to itself, if there are several."""


@dataclass(frozen=True, slots=True)
class Part:
    """A group of items that are measured together."""

    name: str
    items: Callable[[Bench], Sequence[Item]]
    measure: Callable[[Bench], Iterator[Finding]]
    """In any order."""
    min_seconds: float
    """On a GPU; with less left it is not begun."""


def _judge(item: Item, finding: Finding) -> Verdict:
    if finding.verdict is not None:
        return finding.verdict
    if item.aim is None:
        return Verdict.MEASURED
    # NaN meets no aim.
    return Verdict.PASSED if item.aim.is_met_by(finding.figures[item.figures[0]]) else Verdict.FAILED


def one_line(error: BaseException) -> str:
    """For a note."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
