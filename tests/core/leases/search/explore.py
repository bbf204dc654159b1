"""Breadth first through all states, so that the first broken promise comes with a shortest way to it.

Two passes. The first visits every state that the bounds allow and checks what must hold in each. The second shows that
every wait ends: from every state, what happens by itself, without another fault, leads to a state in which all jobs
have ended and nobody holds anything. Since there are finitely many states, a run in which everything that can happen
happens sooner or later then ends too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from tests.core.leases.search.logs import Violation
from tests.core.leases.search.state import State
from tests.core.leases.search.world import Move, World

MAX_MOVES_TO_THE_END = 1000
MAX_CIRCLE = 50


class Counterexample(Exception):
    """A promise that is broken, and a shortest way to where it is."""

    def __init__(self, promise: str, trace: list[str]) -> None:
        self.promise = promise
        self.trace = trace
        super().__init__("\n".join([promise, *(f"{number:4}. {label}" for number, label in enumerate(trace, 1))]))


@dataclass
class Search:
    """One search. Raises `Counterexample`."""

    world: World
    num_moves: int = 0
    num_cut_off: int = 0
    """States that were not followed, since a leader had granted too often."""
    _parents: dict[State, State | None] = field(default_factory=dict)

    @property
    def num_states(self) -> int:
        return len(self._parents)

    def __str__(self) -> str:
        cut_off = f", {self.num_cut_off} of them not followed further" if self.num_cut_off else ""
        return f"{self.num_states} states{cut_off}, {self.num_moves} moves"

    def run(self) -> None:
        self._visit_all()
        self._see_all_end()

    def _visit_all(self) -> None:
        start = self.world.start()
        self._parents[start] = None
        line = deque([start])
        while line:
            state = line.popleft()
            for move in self.world.moves(state):
                self.num_moves += 1
                after = self._after(state, move)
                if after in self._parents:
                    continue
                self._parents[after] = state
                if self.world.has_granted_too_often(after):
                    self.num_cut_off += 1
                else:
                    line.append(after)

    def _after(self, state: State, move: Move) -> State:
        try:
            after = self.world.after(state, move)
            if after not in self._parents:
                self.world.check(after)
        except (Violation, AssertionError) as exc:
            raise Counterexample(str(exc) or repr(exc), [*self._trace(state), move.label]) from exc
        return after

    def _see_all_end(self) -> None:
        """One way to the end is enough; those that were seen to end are not followed again."""
        ending: set[State] = set()
        for state in self._parents:
            way = [state]
            while way[-1] not in ending and not self.world.is_over(way[-1]):
                way.append(self._next_on_the_way(way))
            ending.update(way)

    def _next_on_the_way(self, way: list[State]) -> State:
        recent = set(way[-MAX_CIRCLE:])
        for move in self.world.natural_moves(way[-1]):
            after = self.world.after(way[-1], move)
            if after not in recent and len(way) < MAX_MOVES_TO_THE_END:
                return after
        labels = [self._label(before, after) for before, after in pairwise(way)]
        raise Counterexample("a wait never ends", [*self._trace(way[0]), *labels, "and nothing leads further"])

    def _trace(self, state: State) -> list[str]:
        """The labels of the moves on the way there."""
        states = [state]
        while (parent := self._parents[states[-1]]) is not None:
            states.append(parent)
        states.reverse()
        return [self._label(before, after) for before, after in pairwise(states)]

    def _label(self, before: State, after: State) -> str:
        return next(move.label for move in self.world.moves(before) if self._leads_to(before, move, after))

    def _leads_to(self, before: State, move: Move, after: State) -> bool:
        try:
            return self.world.after(before, move) == after
        except (Violation, AssertionError):
            return False
