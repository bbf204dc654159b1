"""The op ``headway::paged_attention``, and how transformers' models come to call it.

    headway::paged_attention(query, key, value, key_pages!, value_pages!, slot_mapping, page_table,
                             query_start, context_lens, scale, sliding_window, softcap, sinks) -> output
    headway::paged_attention.extended(…, sinks, key_scales, value_scales, cos, sin) -> output

    query         [T, Hq, D]    the new tokens of all B sequences, end to end
    key, value    [T, Hkv, D]   written to the pages first; the value may have a width of its own
    key_pages, value_pages      [num_pages, page_size, Hkv, D], changed in place
    slot_mapping  [T] int64     where each new token goes: page · page_size + offset
    page_table    [B, M] int32  page ids; entries beyond a sequence's length mean nothing
    query_start   [B + 1] int32 sequence b's new tokens are rows query_start[b] to query_start[b + 1]
    context_lens  [B] int32     tokens of the sequence, the new ones included: they are its last ones
    output        [T, Hq, D]

Query head h reads key/value head h // (Hq / Hkv). A token sees itself and what is before it in its own sequence, the
last ``sliding_window`` tokens if that is not 0; ``softcap`` (0: off) and ``sinks`` ([Hq], optional) as in
`headway.engine.paged_reference`, which is the implementation for every device that has no kernel of its own.
A kernel for one device is registered with `register_kernel`; torch's dispatcher then prefers it there.

The second overload takes what a kernel need not know, so that one that does not leaves it to the reference:

    key_scales, value_scales [Hkv] float32      the pages hold eight bits (`headway.engine.page_scales`)
    cos, sin      [T, R]        query and key come without rotary positions: their first R columns, column i with column
                                i + R / 2, are turned first (Su et al., RoFormer, 2021), in float32, rounded once

transformers calls whatever is registered under the model's attention name with [1, heads, T, D] tensors and every
keyword given to the model's forward. So the batch travels as the keyword ``paged``, and no state is global.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from headway.core.errors import EngineError
from headway.engine.page_scales import Scales
from headway.engine.paged_reference import paged_attention_reference

OP = "headway::paged_attention"
EXTENDED_OP = "headway::paged_attention.extended"
ATTENTION_NAME = "headway_paged"
"""The ``attn_implementation`` of every model that Headway loads."""

_PARAMETERS = (
    "Tensor query, Tensor key, Tensor value, Tensor(a!) key_pages, Tensor(b!) value_pages, Tensor slot_mapping, "
    "Tensor page_table, Tensor query_start, Tensor context_lens, float scale, int sliding_window=0, "
    "float softcap=0.0, Tensor? sinks=None"
)
_EXTENSION = "Tensor? key_scales=None, Tensor? value_scales=None, Tensor? cos=None, Tensor? sin=None"
torch.library.define(OP, f"({_PARAMETERS}) -> Tensor")
torch.library.define(EXTENDED_OP, f"({_PARAMETERS}, {_EXTENSION}) -> Tensor")


def _paged_attention_shape(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
    return query.new_empty((*query.shape[:2], value.shape[2]))


for _overload in (OP, EXTENDED_OP):
    torch.library.impl(_overload, "CompositeExplicitAutograd")(paged_attention_reference)
    torch.library.register_fake(_overload)(_paged_attention_shape)


def register_kernel(device_type: str, kernel: Callable[..., Tensor], is_extended: bool = False) -> None:
    """Use ``kernel``, with the op's signature, for tensors on ``device_type`` ("cpu" or "cuda"); with ``is_extended``
    for what the second overload adds, too."""
    for overload in (OP, EXTENDED_OP) if is_extended else (OP,):
        torch.library.impl(overload, device_type)(kernel)


def paged_attention(
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
    """The op, with the module's shapes."""
    batch = (key_pages, value_pages, slot_mapping, page_table, query_start, context_lens)
    plain = (query, key, value, *batch, scale, sliding_window, softcap, sinks)
    op = torch.ops.headway.paged_attention
    output: Tensor
    if key_scales is None and cos is None:
        output = op.default(*plain)
    else:
        output = op.extended(*plain, key_scales, value_scales, cos, sin)
    return output


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One layer's call for attention: tensors of shape [T, heads, D] and the layer's own rules."""

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    sliding_window: int
    softcap: float
    sinks: Tensor | None
    cos: Tensor | None = None
    """[T, R], with ``sin``: query and key are not turned yet."""
    sin: Tensor | None = None


class Paged(Protocol):
    """What travels through a model's forward as the keyword ``paged`` and answers its layers."""

    def attend(self, call: LayerCall) -> Tensor:
        """[T, Hq, D]"""


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """One step's sequences and the pages of all layers; shapes as in the module docstring."""

    key_pages: Sequence[Tensor]
    value_pages: Sequence[Tensor]
    slot_mapping: Tensor
    page_table: Tensor
    query_start: Tensor
    context_lens: Tensor
    scales: Sequence[Scales] | None = None
    """By layer, for pages of eight bits."""

    def attend(self, call: LayerCall) -> Tensor:
        scales = None if self.scales is None else self.scales[call.layer]
        return paged_attention(
            call.query,
            call.key,
            call.value,
            self.key_pages[call.layer],
            self.value_pages[call.layer],
            self.slot_mapping,
            self.page_table,
            self.query_start,
            self.context_lens,
            call.scale,
            call.sliding_window,
            call.softcap,
            call.sinks,
            key_scales=None if scales is None else scales.key,
            value_scales=None if scales is None else scales.value,
            cos=call.cos,
            sin=call.sin,
        )


def transformers_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    paged: Paged | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The function that transformers' attention layers call: [1, H, T, D] in, [1, T, Hq, D] out."""
    if paged is None:
        raise EngineError(f"{type(module).__name__} does not pass on the keywords of its model's forward")
    if position_bias is not None or attention_mask is not None or not getattr(module, "is_causal", True):
        raise EngineError(
            f"{type(module).__name__} is not plain causal attention (a position bias or a mask of its own)"
        )
    call = LayerCall(
        layer=int(module.layer_idx),  # type: ignore[arg-type]  # any attribute of a Module may be one, to a type checker
        query=query[0].transpose(0, 1),
        key=key[0].transpose(0, 1),
        value=value[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window or 0,
        softcap=softcap or 0.0,
        sinks=s_aux,
    )
    return paged.attend(call)[None], None


AttentionInterface.register(ATTENTION_NAME, transformers_attention)
