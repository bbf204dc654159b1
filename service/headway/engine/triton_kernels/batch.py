"""What attention is to be computed of."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headway.engine.page_scales import Scales


@dataclass(frozen=True, slots=True)
class Batch:
    """The op's arguments without what is written; shapes as in `headway.engine.attention`."""

    query: Tensor
    key_pages: Tensor
    value_pages: Tensor
    page_table: Tensor
    query_start: Tensor
    context_lens: Tensor
    scale: float
    sliding_window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None
    scales: Scales | None = None
    """Of pages of eight bits. Needs compute capability 8.9: older chips do not convert float8 e4m3."""

    @property
    def num_sequences(self) -> int:
        return len(self.context_lens)

    @property
    def num_kv_heads(self) -> int:
        return self.key_pages.shape[2]

    @property
    def group_size(self) -> int:
        return self.query.shape[1] // self.num_kv_heads

    @property
    def page_size(self) -> int:
        return self.key_pages.shape[1]

    @property
    def value_dim(self) -> int:
        return self.value_pages.shape[3]

    @property
    def max_keys(self) -> int:
        """That one query of any sequence can see: known without its length."""
        table = self.page_table.shape[1] * self.page_size
        return min(table, self.sliding_window) if self.sliding_window else table
