r"""An ordered set that answers "the first entry, in order, that needs no more than this" in O(log n).

A queue of jobs is asked for the first job *that fits the room of a worker*. A heap only knows its head, so a big
job at the head would force a walk over all jobs behind it. Here every subtree knows the least size in it, so the
descent turns into the leftmost subtree that holds something small enough:

            (rank 5, size 8, least 1)
             /                     \
    (rank 2, size 9, least 7)   (rank 7, size 1, least 1)
             \
        (rank 3, size 7, least 7)          first(max_size=4) is rank 7: nothing on the left is below 7

The tree is a treap (Seidel and Aragon, "Randomized search trees", 1996): a search tree by rank and a heap by a
pseudo-random draw, hence balanced in expectation whatever order the ranks come in. The draw is the hash of the
rank, so that the same jobs always build the same tree.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Rank(NamedTuple):
    """A place in an order: the lower score first, equal scores by sequence. Unique within an order."""

    score: float
    sequence: int


class FirstFit(Generic[T]):
    """Entries by `Rank`, each with a size. `insert`, `discard`, `resize` and `first` cost O(log n) expected."""

    def __init__(self) -> None:
        self._root: _Node[T] | None = None
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    @property
    def least_size(self) -> float:
        """The least size of all entries; infinite if there are none."""
        return math.inf if self._root is None else self._root.least

    def insert(self, rank: Rank, size: float, item: T) -> None:
        self._root = _insert(self._root, _Node(rank, size, item))
        self._num_entries += 1

    def discard(self, rank: Rank) -> None:
        """Removes the entry of that rank, which must be there."""
        self._root = _discard(self._root, rank)
        self._num_entries -= 1

    def resize(self, rank: Rank, size: float) -> None:
        """Gives the entry of that rank, which must be there, another size."""
        _resize(self._root, rank, size)

    def first(self, max_size: float = math.inf) -> T | None:
        """The first entry in order whose size is at most ``max_size``."""
        node = self._root
        if node is None or node.least > max_size:
            return None
        while True:
            if node.left is not None and node.left.least <= max_size:
                node = node.left
            elif node.size <= max_size:
                return node.item
            else:
                assert node.right is not None, "the least size is in some subtree"
                node = node.right


class _Node(Generic[T]):
    __slots__ = ("draw", "item", "least", "left", "rank", "right", "size")

    def __init__(self, rank: Rank, size: float, item: T) -> None:
        self.rank = rank
        self.size = size
        self.item = item
        self.draw = hash(rank)
        self.least = size
        self.left: _Node[T] | None = None
        self.right: _Node[T] | None = None

    def refresh(self) -> _Node[T]:
        """Sums up the children; to be called whenever one of them changed."""
        least = self.size
        if self.left is not None and self.left.least < least:
            least = self.left.least
        if self.right is not None and self.right.least < least:
            least = self.right.least
        self.least = least
        return self


def _insert(root: _Node[T] | None, new: _Node[T]) -> _Node[T]:
    if root is None:
        return new
    if new.draw > root.draw:
        new.left, new.right = _split(root, new.rank)
        return new.refresh()
    assert new.rank != root.rank, f"{new.rank = } is taken"
    if new.rank < root.rank:
        root.left = _insert(root.left, new)
    else:
        root.right = _insert(root.right, new)
    return root.refresh()


def _split(root: _Node[T] | None, rank: Rank) -> tuple[_Node[T] | None, _Node[T] | None]:
    """The entries below ``rank``, and the others."""
    if root is None:
        return None, None
    if root.rank < rank:
        root.right, upper = _split(root.right, rank)
        return root.refresh(), upper
    lower, root.left = _split(root.left, rank)
    return lower, root.refresh()


def _merge(lower: _Node[T] | None, upper: _Node[T] | None) -> _Node[T] | None:
    """One tree of two, all of ``lower`` before all of ``upper``."""
    if lower is None or upper is None:
        return lower or upper
    if lower.draw > upper.draw:
        lower.right = _merge(lower.right, upper)
        return lower.refresh()
    upper.left = _merge(lower, upper.left)
    return upper.refresh()


def _discard(root: _Node[T] | None, rank: Rank) -> _Node[T] | None:
    assert root is not None, f"{rank = } is not here"
    if root.rank == rank:
        return _merge(root.left, root.right)
    if rank < root.rank:
        root.left = _discard(root.left, rank)
    else:
        root.right = _discard(root.right, rank)
    return root.refresh()


def _resize(root: _Node[T] | None, rank: Rank, size: float) -> None:
    assert root is not None, f"{rank = } is not here"
    if root.rank == rank:
        root.size = size
    else:
        _resize(root.left if rank < root.rank else root.right, rank, size)
    root.refresh()
