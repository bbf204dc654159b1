"""The sequences that wait to join the batch, first come first served: the order was decided by the queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from headway.core.sequence import Sequence


class WaitingLine:
    """A line whose head is preempted sequences, and which knows how many pages it needs in O(1)."""

    def __init__(self, num_pages_to_join: Callable[[Sequence], int]) -> None:
        self._num_pages_to_join = num_pages_to_join
        self._line: deque[Sequence] = deque()
        self.num_pages = 0
        """Pages that all of them need to join (a waiting sequence does not grow)."""

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._line)

    @property
    def head(self) -> Sequence | None:
        return self._line[0] if self._line else None

    def append(self, sequence: Sequence) -> None:
        self._line.append(sequence)
        self.num_pages += self._num_pages_to_join(sequence)

    def put_first(self, sequence: Sequence) -> None:
        self._line.appendleft(sequence)
        self.num_pages += self._num_pages_to_join(sequence)

    def lose_pending(self, sequence: Sequence) -> None:
        """The tokens that were pending when it was preempted will not come: they are sampled again."""
        self.num_pages -= self._num_pages_to_join(sequence)
        sequence.num_pending_tokens = 0
        self.num_pages += self._num_pages_to_join(sequence)

    def remove(self, sequence: Sequence) -> None:
        """O(1) at the head, else O(waiting)."""
        self._line.remove(sequence)
        self.num_pages -= self._num_pages_to_join(sequence)
