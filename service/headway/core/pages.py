"""The pages of the KV cache: who holds them, and which unused ones still hold a prefix worth keeping.

    free ──allocate──▶ used ──release, unpublished──▶ free
                        ▲ │
                  share │ └──release, published──▶ cached ──allocate, oldest first──▶ used (its content is forgotten)
                        └───────────────────────────┘

A page is *used* while somebody holds a reference to it, *cached* when nobody does but its content is published under a
key (`page_keys`), and *free* otherwise: free + cached + used = total, always. Only full pages whose keys and values
are computed are published; from then on nobody writes to them, so any number of sequences may read them.

Running out of pages is a return value. Ids are plain integers; the memory itself is the engine's.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from headway.core.stats import PageStats


class PagePool:
    """Pages 0 to ``num_pages - 1`` of ``page_size`` tokens each. Every operation is O(1) for each page it names."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(num_pages - 1, -1, -1))
        """A stack: the page freed last is used next, while it may still be in the processor's caches."""
        self._cached: OrderedDict[int, None] = OrderedDict()
        """Least recently released first. Not a dict: taking the first entry of one again and again gets slow."""
        self._num_references = [0] * num_pages
        self._key_by_page: dict[int, bytes] = {}
        self._page_by_key: dict[bytes, int] = {}

    @property
    def num_available(self) -> int:
        """Pages that `allocate` can hand out."""
        return len(self._free) + len(self._cached)

    def num_pages_for(self, num_tokens: int) -> int:
        """Pages that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.page_size)

    def num_cached_of(self, pages: list[int]) -> int:
        """How many of ``pages`` nobody holds now, so that sharing them makes fewer pages available."""
        return sum(1 for page in pages if not self._num_references[page])

    def allocate(self, num_pages: int) -> list[int] | None:
        """``num_pages`` pages of undefined content with one reference each; None, and nothing changed, if too few."""
        if num_pages > self.num_available:
            return None
        for _ in range(num_pages - len(self._free)):
            self._evict()
        first = len(self._free) - num_pages
        pages = self._free[first:]
        del self._free[first:]
        for page in pages:
            self._num_references[page] = 1
        return pages

    def find_prefix(self, keys: Iterable[bytes]) -> list[int]:
        """The pages published under the first ``keys``, up to the first that is missing. Takes no references."""
        pages: list[int] = []
        for key in keys:
            page = self._page_by_key.get(key)
            if page is None:
                break
            pages.append(page)
        return pages

    def share(self, pages: list[int]) -> None:
        """One more reference for each of these published pages (as `find_prefix` gave them, before anything else)."""
        for page in pages:
            if not self._num_references[page]:
                del self._cached[page]
            self._num_references[page] += 1

    def publish(self, page: int, key: bytes) -> None:
        """Let ``page``, held, full and computed, be found under ``key``.

        If another page is known by that key already (two sequences computed one prefix at the same time), the first
        one stays and this one remains its holder's own.
        """
        assert self._num_references[page] > 0, f"page {page} is published by nobody"
        assert page not in self._key_by_page, f"page {page} is published twice"
        if key not in self._page_by_key:
            self._page_by_key[key] = page
            self._key_by_page[page] = key

    def forget(self, pages: list[int]) -> None:
        """Let nobody find these pages, which are held or cached: what is in them is not to be trusted."""
        for page in pages:
            key = self._key_by_page.pop(page, None)
            if key is not None:
                del self._page_by_key[key]
            if page in self._cached:
                del self._cached[page]
                self._free.append(page)

    def release(self, pages: list[int]) -> None:
        """Give back one reference of each page of a page table.

        From the last page to the first: a page is of no use without those before it, so it is evicted before them.
        """
        for page in reversed(pages):
            assert self._num_references[page] > 0, f"page {page} is released twice"
            self._num_references[page] -= 1
            if self._num_references[page]:
                continue
            if page in self._key_by_page:
                self._cached[page] = None
            else:
                self._free.append(page)

    def stats(self) -> PageStats:
        """O(1)."""
        return PageStats(
            num_total=self.num_pages,
            num_free=len(self._free),
            num_cached=len(self._cached),
            num_used=self.num_pages - self.num_available,
        )

    def check_integrity(self, page_tables: Iterable[list[int]]) -> None:
        """Assert the invariant, given the page tables of all holders. O(pages): for tests and idle moments."""
        references = Counter(page for table in page_tables for page in table)
        free, cached, used = set(self._free), set(self._cached), set(references)
        assert self._num_references == [references.get(page, 0) for page in range(self.num_pages)]
        assert len(free) == len(self._free), "a page is free twice"
        assert len(free) + len(cached) + len(used) == self.num_pages
        assert free | cached | used == set(range(self.num_pages))
        assert self._page_by_key == {key: page for page, key in self._key_by_page.items()}
        assert cached <= set(self._key_by_page) <= cached | used

    def _evict(self) -> None:
        page, _ = self._cached.popitem(last=False)
        del self._page_by_key[self._key_by_page.pop(page)]
        self._free.append(page)
