"""The page tables of sequences: filled when a sequence joins, extended as it grows, cleared when it leaves.

This is the only place where sequences take and give back pages, so the pages of a sequence have one way in and one way
out. Prefix sharing happens here: a table begins with pages that hold the same tokens already.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.page_keys import iter_page_keys
from headway.core.pages import PagePool
from headway.core.scheduler_config import PrefixSharing
from headway.core.sequence import Sequence


class PageTables:
    def __init__(self, pool: PagePool, sharing: PrefixSharing) -> None:
        self._pool = pool
        self._sharing = sharing

    def fill(self, sequence: Sequence, num_pages: int, max_taken: int) -> bool:
        """Give the sequence, of which no token is pending, ``num_pages`` pages, shared ones of its longest known
        prefix first.

        False, and nothing changed, if that would make more than ``max_taken`` pages unavailable to others.
        """
        shared = self._find_prefix(sequence)
        num_new = num_pages - len(shared)
        if num_new + self._pool.num_cached_of(shared) > max_taken:
            return False
        self._pool.share(shared)
        new = self._pool.allocate(num_new)
        assert new is not None, f"{max_taken = } pages are not available"
        sequence.page_table = shared + new
        sequence.num_computed_tokens = len(shared) * self._pool.page_size
        return True

    def lacks_page(self, sequence: Sequence) -> bool:
        """Whether its last token has no slot yet."""
        return sequence.num_tokens_with_pending > len(sequence.page_table) * self._pool.page_size

    def extend(self, sequence: Sequence) -> bool:
        """One more page; False, and nothing changed, if there is none."""
        pages = self._pool.allocate(1)
        if pages is None:
            return False
        sequence.page_table += pages
        return True

    def publish(self, sequence: Sequence, start: int, end: int) -> None:
        """Tokens ``start`` to ``end - 1`` are known and computed: let others find the pages that they filled."""
        page_size = self._pool.page_size
        first, last = start // page_size, end // page_size
        if first == last or self._sharing is PrefixSharing.OFF:
            return
        keys = self._keys(sequence, first, last)
        for page, key in zip(sequence.page_table[first:last], keys, strict=True):
            self._pool.publish(page, key)

    def forget(self, sequence: Sequence) -> None:
        """Let no later sequence share its pages, or those that it had before it was preempted."""
        self._pool.forget(sequence.page_table or self._pool.find_prefix(sequence.page_keys))

    def clear(self, sequence: Sequence) -> None:
        """Give all its pages back. The published ones stay cached as long as nobody needs the room."""
        self._pool.release(sequence.page_table)
        sequence.page_table = []

    def _find_prefix(self, sequence: Sequence) -> list[int]:
        """Pages that hold its first tokens. Never all tokens: the last is computed, to sample from it."""
        if self._sharing is PrefixSharing.OFF:
            return []
        num_full_pages = (sequence.num_tokens - 1) // self._pool.page_size
        return self._pool.find_prefix(self._keys(sequence, 0, num_full_pages))

    def _keys(self, sequence: Sequence, start: int, stop: int) -> Iterator[bytes]:
        namespace = "" if self._sharing is PrefixSharing.ALL else sequence.sharing_namespace
        return iter_page_keys(sequence, namespace, self._pool.page_size, start, stop)
