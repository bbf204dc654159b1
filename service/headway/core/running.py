"""The sequences that run, with their slots and pages: who may join, and what leaving sets free.

`Batch` is continuous batching; `static_batch.StaticBatch` is the baseline. They differ only here: the scheduler is the
same for both.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.page_tables import PageTables
from headway.core.pages import PagePool
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence


class Batch:
    """A sequence joins at any step, and its slot and pages are free the moment it leaves.

    Admission stops short of the last page, because the running sequences all grow: in a cache that admission alone
    has filled they preempt each other all the time. Below ``page_watermark_low`` nobody joins until
    ``page_watermark_high`` is available again, so that admission does not flutter around one mark. (300 jobs of up
    to 1,000 tokens through 1,000 pages: without watermarks 34 % of the tokens were recomputed, with 5 and 10 % of the
    pages 6 %, in about the same number of steps.) An empty batch ignores both marks: what fits the pool must run.
    """

    waits_for_tokens = True
    """Whether a sequence joins only in a step that has tokens left for it."""

    def __init__(self, config: SchedulerConfig, pool: PagePool, tables: PageTables) -> None:
        self.running: list[Sequence] = []
        """In order of joining."""
        self._max_num_seqs = config.max_num_seqs
        self._pool = pool
        self._tables = tables
        self._low = int(config.page_watermark_low * pool.num_pages)
        self._high = int(config.page_watermark_high * pool.num_pages)
        self._is_held = False

    @property
    def num_slots(self) -> int:
        """Slots that a step could fill."""
        return self._max_num_seqs

    @property
    def holders(self) -> Iterable[Sequence]:
        """Whoever holds pages."""
        return self.running

    @property
    def has_free_slot(self) -> bool:
        return len(self.running) < self._max_num_seqs

    @property
    def num_admissible_pages(self) -> int:
        """Available pages that sequences which join now may take."""
        available = self._pool.num_available
        if not self.running:
            return available
        return 0 if self._is_held else max(0, available - self._low)

    @property
    def num_promised_pages(self) -> int:
        """Pages that waiting sequences can count on, so that as many of them may be fetched."""
        return self.num_admissible_pages

    def num_pages_to_join(self, sequence: Sequence) -> int:
        """Pages for all its tokens and the next one. All at once, although a long prompt is computed in chunks: so
        partial prefills never run out of pages half-way."""
        return self._pool.num_pages_for(sequence.num_tokens_with_pending + 1)

    def begin_admission(self) -> None:
        """Once in each step, before anybody joins."""
        available = self._pool.num_available
        if available < self._low:
            self._is_held = True
        elif available >= self._high:
            self._is_held = False

    def join(self, sequence: Sequence) -> bool:
        """Give the sequence a slot and its pages; False, and nothing changed, if there are too few."""
        if not self.has_free_slot:
            return False
        if not self._tables.fill(sequence, self.num_pages_to_join(sequence), self.num_admissible_pages):
            return False
        self.running.append(sequence)
        return True

    def leave(self, sequence: Sequence) -> None:
        """The one way out of the batch: ended, withdrawn or preempted."""
        self.running.remove(sequence)
        self._tables.clear(sequence)
