"""Static batching, the baseline of every comparison: a bus that waits until it is full and lets nobody off."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.page_tables import PageTables
from headway.core.pages import PagePool
from headway.core.running import Batch
from headway.core.scheduler_config import SchedulerConfig
from headway.core.sequence import Sequence
from headway.core.stopping import max_num_tokens


class StaticBatch(Batch):
    """All rows join in one step; nobody joins until the longest has ended.

    A row that has ended keeps its slot and its pages, as the rows of a padded tensor would, but it is not computed:
    the comparison shows what the waiting costs, not what padding costs. Each row reserves the pages of its longest
    possible output when it joins, as such servers do, so that none is ever preempted.
    """

    waits_for_tokens = False

    def __init__(self, config: SchedulerConfig, pool: PagePool, tables: PageTables, max_model_len: int) -> None:
        super().__init__(config, pool, tables)
        self._max_model_len = max_model_len
        self._rows: list[Sequence] = []
        self._is_forming = False

    @property
    def num_slots(self) -> int:
        return len(self._rows)

    @property
    def holders(self) -> Iterable[Sequence]:
        return self._rows

    @property
    def has_free_slot(self) -> bool:
        return self._is_forming and len(self._rows) < self._max_num_seqs

    @property
    def num_admissible_pages(self) -> int:
        return self._pool.num_available

    @property
    def num_promised_pages(self) -> int:
        """The next batch has the whole pool."""
        return self._pool.num_pages

    def num_pages_to_join(self, sequence: Sequence) -> int:
        return self._pool.num_pages_for(max_num_tokens(sequence, self._max_model_len))

    def begin_admission(self) -> None:
        self._is_forming = not self._rows

    def join(self, sequence: Sequence) -> bool:
        joined = super().join(sequence)
        if joined:
            self._rows.append(sequence)
        return joined

    def leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        if self.running:
            return
        for row in self._rows:
            self._tables.clear(row)
        self._rows.clear()
