"""Names for the content of pages: a hash chained over a full page's tokens and everything before them.

Two pages with the same key hold the same keys and values, because attention over a page depends on its tokens and on
all tokens before it: ``key(i) = H(key(i - 1), tokens of page i)``, and ``key(-1)`` is made of the namespace, so that
namespaces can never meet.

The hash must resist collisions: with a weak one (Python's ``hash``, CRC) a client could craft a prompt that collides
with somebody else's prefix and read an answer that was conditioned on it. BLAKE2b with 32 bytes gives 128 bits against
that, at about a microsecond a page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from hashlib import blake2b

from headway.core.sequence import Sequence

_KEY_BYTES = 32


def root_key(namespace: str) -> bytes:
    """The parent of every first page of ``namespace``."""
    return blake2b(namespace.encode(), digest_size=_KEY_BYTES, person=b"headway-root").digest()


def next_page_key(parent: bytes, token_ids: list[int]) -> bytes:
    """The key of a full page with ``token_ids`` behind the pages that ``parent`` names."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=_KEY_BYTES).digest()


def iter_page_keys(sequence: Sequence, namespace: str, page_size: int, start: int, stop: int) -> Iterator[bytes]:
    """Keys of the sequence's full pages ``start`` to ``stop - 1``; always asked for with the same namespace.

    Each is computed once and kept in ``sequence.page_keys`` (tokens are only ever appended, so it stays right), and
    none is computed before it is asked for: a search that misses at its first page costs one hash.
    """
    keys = sequence.page_keys
    for index in range(start, stop):
        while len(keys) <= index:
            first = len(keys) * page_size
            parent = keys[-1] if keys else root_key(namespace)
            keys.append(next_page_key(parent, sequence.token_ids[first : first + page_size]))
        yield keys[index]
