"""The processes of the searched world, by number: each distinct condition of one is kept once, each step taken once.

A state of the world names its leaders and workers by such numbers. So the real objects are unpickled and stepped only
when a process meets an event in a condition in which it has never met it before (some thousand times), while the
search over their combinations (some hundred thousand) handles small tuples of integers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Generic, TypeVar

Process = TypeVar("Process")
Facts = TypeVar("Facts")

ATOMS = (int, float, str, bytes, bool, type(None), Enum, type)
IGNORED = {
    "Leases": {"_figures", "_terms"},
    "OutstandingJobs": {"_terms"},
    "WaitingJobs": {"_max_shared_attempts"},
    "JobQueue": {"_config", "_predictor", "_backlog", "_deadlines"},
    "Reservations": {"_config"},
    "RankedPolicy": {"_ranking"},
    "QueuedJob": {"charged", "num_grants", "num_cached_tokens", "num_output_tokens", "num_predicted_tokens"},
    "Worker": {"load"},
}
"""Fields that decide nothing here: settings, figures for people, and sizes of jobs that fit everywhere. Whatever is not
named counts, so a field that is added to a class makes the search larger, never blind."""
UNORDERED = {("OutstandingJobs", "_leases"), ("JobQueue", "_waiting"), ("Roster", "_by_stream")}
"""Dictionaries that are only ever looked up by key."""


def canonical(value: Any, seen: dict[int, int] | None = None) -> Hashable:
    """Equal for two objects that act alike: their fields, with shared and cyclic references by number."""
    seen = {} if seen is None else seen
    if isinstance(value, ATOMS):
        return value
    if isinstance(value, dict):
        return tuple((canonical(key, seen), canonical(item, seen)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return tuple(sorted((canonical(item, seen) for item in value), key=repr))
    if isinstance(value, list | tuple):
        return tuple(canonical(item, seen) for item in value)
    return _canonical_object(value, seen)


def _canonical_object(value: Any, seen: dict[int, int]) -> Hashable:
    kind: Any = type(value)
    if not (is_dataclass(kind) and kind.__dataclass_params__.frozen):
        if id(value) in seen:
            return ("again", seen[id(value)])
        seen[id(value)] = len(seen)
    fields = [canonical(_field(kind, value, name), seen) for name in _field_names(kind, value)]
    return (kind.__name__, *fields)


def _field(kind: type, value: Any, name: str) -> Any:
    field = getattr(value, name)
    is_unordered = any((base.__name__, name) in UNORDERED for base in kind.__mro__)
    return dict(sorted(field.items(), key=lambda item: repr(item[0]))) if is_unordered else field


def _field_names(kind: type, value: Any) -> list[str]:
    return [name for name in (*_slots(kind), *getattr(value, "__dict__", ())) if name not in _ignored(kind)]


@cache
def _slots(kind: type) -> list[str]:
    return [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name not in _ignored(kind)]


@cache
def _ignored(kind: type) -> set[str]:
    return set().union(*(IGNORED.get(base.__name__, set()) for base in kind.__mro__))


class Numbers:
    """Hashable things by number, from 0 in the order of their first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.things: list[Any] = []

    def of(self, thing: Hashable) -> int:
        number = self._numbers.get(thing)
        if number is None:
            number = self._numbers[thing] = len(self.things)
            self.things.append(thing)
        return number


class Parts(Generic[Process, Facts]):
    """All conditions of one kind of process (leader, or worker), and all steps between them."""

    def __init__(self, facts: Callable[[Process], Facts]) -> None:
        self._facts = facts
        self._numbers = Numbers()
        self._blobs: list[bytes] = []
        self._steps: dict[tuple[int, Hashable], tuple[int, Any]] = {}
        self.facts: list[Facts] = []
        """By condition, what the search needs to know of it."""

    def __len__(self) -> int:
        return len(self._blobs)

    def number(self, process: Process) -> int:
        number = self._numbers.of(canonical(process))
        if number == len(self._blobs):
            self._blobs.append(pickle.dumps(process, pickle.HIGHEST_PROTOCOL))
            self.facts.append(self._facts(process))
        return number

    def step(self, number: int, event: tuple[Hashable, ...]) -> tuple[int, Any]:
        """What becomes of the process, and what it does: ``event`` is a method's name and its arguments."""
        known = self._steps.get((number, event))
        if known is None:
            process = pickle.loads(self._blobs[number])
            done = getattr(process, str(event[0]))(*event[1:])
            known = self._steps[number, event] = (self.number(process), done)
        return known
