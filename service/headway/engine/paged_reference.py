"""Paged attention in plain torch: what faster kernels are tested against, and what runs on any device.

It gathers the keys and values that a query may see into contiguous tensors and leaves the arithmetic to torch's
scaled_dot_product_attention, which accumulates in float32 (float64 for float64 inputs); only soft capping and sinks,
which that function lacks, are written out. Sequences with one new token, the decodes, go together, those of about
one length padded to the longest of them; the others one by one. The price is the copy, and on a GPU a wait for the
lengths: a kernel of one's own reads pages in place.

Only slots that a query may see are ever read. What lies in the others (NaN, another sequence) cannot leak.

Pages of eight bits are read as what they stand for, in float32, and so is everything computed of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headway.engine.page_scales import EIGHT_BITS, Scales, from_eight_bits, to_eight_bits

_NUM_CPU_ROWS = 16
"""Decodes that are padded to one length on a CPU: so few that most of it is no padding and their keys and values stay
in its caches (64 sequences of 150 tokens on average, the longest 338: half the time of all at once)."""


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """What makes one layer's attention differ from the plain one."""

    scale: float
    sliding_window: int
    """A query sees this many last tokens, itself included; 0: all."""
    softcap: float
    """Scores s become softcap · tanh(s / softcap); 0: they stay."""
    sinks: Tensor | None
    """[Hq]: a score per head that takes part in the softmax and contributes no value."""

    @property
    def is_plain(self) -> bool:
        return not self.sliding_window and not self.softcap and self.sinks is None

    def first_visible(self, position: Tensor) -> Tensor:
        if not self.sliding_window:
            return torch.zeros_like(position)
        return (position + 1 - self.sliding_window).clamp(min=0)


@dataclass(frozen=True, slots=True)
class PagedKeysValues:
    """Keys and values in pages, [num_pages, page_size, Hkv, D], read through page tables."""

    key_pages: Tensor
    value_pages: Tensor
    scales: Scales | None = None

    def write(self, key: Tensor, value: Tensor, slot_mapping: Tensor) -> None:
        if self.scales is not None:
            key, value = to_eight_bits(key, self.scales.key), to_eight_bits(value, self.scales.value)
        for pages, new in ((self.key_pages, key), (self.value_pages, value)):
            _copyable(pages).flatten(0, 1).index_copy_(0, slot_mapping, _copyable(new))

    def read(self, page_tables: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values at ``positions`` [B, L] of the sequences of ``page_tables`` [B, …], as [B, Hkv, L, D]."""
        page_size = self.key_pages.shape[1]
        pages = page_tables.long().gather(1, positions // page_size)
        slots = pages * page_size + positions % page_size
        keys, values = self._gather(self.key_pages, slots), self._gather(self.value_pages, slots)
        if self.scales is not None:
            keys, values = from_eight_bits(keys, self.scales.key), from_eight_bits(values, self.scales.value)
        return keys.transpose(1, 2), values.transpose(1, 2)

    @staticmethod
    def _gather(pages: Tensor, slots: Tensor) -> Tensor:
        # Rows in two dimensions: index_select then copies whole rows, several times faster than indexing.
        rows = _copyable(pages).flatten(0, 1).flatten(1).index_select(0, slots.flatten())
        return rows.view(pages.dtype).view(*slots.shape, *pages.shape[2:])


def _copyable(tensor: Tensor) -> Tensor:
    """The same memory: torch moves numbers of eight bits by index only if they are integers."""
    return tensor.view(torch.uint8) if tensor.dtype == EIGHT_BITS else tensor


def paged_attention_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    slot_mapping: Tensor,
    page_table: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    scale: float,
    sliding_window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """See `headway.engine.attention` for shapes and meaning."""
    rule = AttentionRule(scale, sliding_window, softcap, sinks)
    scales = None if key_scales is None or value_scales is None else Scales(key_scales, value_scales)
    pages = PagedKeysValues(key_pages, value_pages, scales)
    dtype = query.dtype
    if cos is not None and sin is not None:
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
    if scales is not None:
        query = query.to(_wide(dtype))
    pages.write(key, value, slot_mapping)
    output = query.new_empty((*query.shape[:2], value.shape[2]))
    query_lens = query_start.diff()
    decodes = (query_lens == 1).nonzero().flatten()
    for group in _of_like_length(decodes, context_lens):
        rows = query_start[group].long()
        output[rows] = _attend_decodes(query[rows], pages, page_table[group], context_lens[group].long(), rule)
    for index in (query_lens > 1).nonzero().flatten().tolist():
        start, end = query_start[index : index + 2].tolist()
        length = int(context_lens[index])
        output[start:end] = _attend_chunk(query[start:end], pages, page_table[index : index + 1], length, rule)
    return output.to(dtype)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``heads`` [T, H, D] with their first R columns turned by ``cos`` and ``sin`` [T, R]."""
    wide, num_columns = heads.to(_wide(heads.dtype)), cos.shape[-1]
    turning, rest = wide[..., :num_columns], wide[..., num_columns:]
    low, high = turning.chunk(2, dim=-1)
    turned = turning * cos[:, None] + torch.cat((-high, low), dim=-1) * sin[:, None]
    return torch.cat((turned, rest), dim=-1).to(heads.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _of_like_length(decodes: Tensor, context_lens: Tensor) -> tuple[Tensor, ...]:
    """The indices ``decodes`` in groups that are worth padding to one length. On a GPU all of them: there another
    group's launches cost more than padding."""
    if not len(decodes):
        return ()
    size = _NUM_CPU_ROWS if decodes.device.type == "cpu" else len(decodes)
    return decodes[context_lens[decodes].argsort(stable=True)].split(size)


def _attend_decodes(
    query: Tensor, pages: PagedKeysValues, page_tables: Tensor, context_lens: Tensor, rule: AttentionRule
) -> Tensor:
    """One query [B, Hq, D] per sequence, each against its own past; shorter ones padded with their own last slot."""
    last = context_lens[:, None] - 1
    first = rule.first_visible(last)
    positions = first + torch.arange(int((last - first).max()) + 1, device=query.device)
    visible = positions <= last
    keys, values = pages.read(page_tables, positions.minimum(last))
    # The query heads of one group share keys and values: as rows of one head they need no copies of them.
    groups = query.unflatten(1, (keys.shape[1], -1))
    sinks = None if rule.sinks is None else rule.sinks.view(groups.shape[1:3])
    return _attend(groups, keys, values, visible[:, None, None, :], rule, sinks).flatten(1, 2)


def _attend_chunk(
    query: Tensor, pages: PagedKeysValues, page_table: Tensor, context_len: int, rule: AttentionRule
) -> Tensor:
    """The last n tokens of one sequence, query [n, Hq, D], against its past and, causally, each other."""
    query_positions = torch.arange(context_len - len(query), context_len, device=query.device)
    first = rule.first_visible(query_positions)
    positions = torch.arange(int(first[0]), context_len, device=query.device)
    keys, values = pages.read(page_table, positions[None])
    group_size = query.shape[1] // keys.shape[1]
    keys, values = (heads.repeat_interleave(group_size, dim=1) for heads in (keys, values))
    queries = query.transpose(0, 1)[None]
    if len(query) == context_len and rule.is_plain:
        output = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=rule.scale)
    else:
        visible = (positions <= query_positions[:, None]) & (positions >= first[:, None])
        output = _attend(queries, keys, values, visible, rule, None if rule.sinks is None else rule.sinks[:, None])
    return output[0].transpose(0, 1)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, rule: AttentionRule, sinks: Tensor | None
) -> Tensor:
    """query [B, H, N, D], keys and values [B, H, L, D], ``visible`` broadcasts to [B, H, N, L], ``sinks`` to [H, N]."""
    if not rule.softcap and sinks is None:
        return scaled_dot_product_attention(query, keys, values, attn_mask=visible, scale=rule.scale)
    wide = _wide(query.dtype)
    scores = query.to(wide) @ keys.to(wide).transpose(-1, -2) * rule.scale
    if rule.softcap:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        column = sinks.to(wide)[..., None].expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = scores.softmax(dim=-1)[..., : keys.shape[-2]]
    return (weights @ values.to(wide)).to(query.dtype)
