"""Batches for paged attention on a device, with what a float64 computation makes of them.

Pages lie in random order, everything that no query may see is NaN, and the cache may be so large that its elements
cannot be counted in 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headway.engine.page_scales import from_eight_bits, to_eight_bits
from headway.engine.paged_reference import paged_attention_reference

TOLERANCES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""Absolute, for numbers of about one: inputs are drawn from the normal distribution."""

DECODES = ((1, 1), (1, 17), (1, 4096), (1, 513), (1, 900), (1, 64))
MIXED = ((1, 40), (1, 3000), (300, 1300), (2, 2), (77, 77), (1, 1), (129, 640))
LONG = ((1, 100), (1, 40_000), (64, 9_000))


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """One layer and one ragged batch."""

    name: str
    lengths: tuple[tuple[int, int], ...] = MIXED
    """(new tokens, tokens in all) of each sequence."""
    dtype: torch.dtype = torch.bfloat16
    num_heads: int = 32
    num_kv_heads: int = 8
    key_dim: int = 128
    value_dim: int = 128
    page_size: int = 16
    sliding_window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False
    has_eight_bits: bool = False
    """In the pages."""
    rotary_dim: int = 0
    """Columns of queries and keys that the op turns."""
    first_page: int = 0
    """Pages below are there and unused."""

    @property
    def tolerance(self) -> float:
        return TOLERANCES[self.dtype]


def attention_cases() -> tuple[AttentionCase, ...]:
    """Every kind of layer that the kernels serve, with decodes alone and mixed with chunks."""
    sizes = [(64, 64), (80, 80), (96, 96), (256, 256), (192, 128), (17, 33)]
    kinds: dict[str, dict[str, Any]] = {
        "bfloat16": {},
        "float16": {"dtype": torch.float16},
        "float32": {"dtype": torch.float32},
        **{f"heads of {key} and {value}": {"key_dim": key, "value_dim": value} for key, value in sizes},
        **{f"{heads} query heads to one": {"num_heads": 8 * heads} for heads in (1, 3, 7, 8)},
        "71 query heads to one": {"num_heads": 71, "num_kv_heads": 1, "key_dim": 64, "value_dim": 64},
        **{f"pages of {size}": {"page_size": size} for size in (32, 64, 128)},
        "window": {"sliding_window": 100},
        "window of one": {"sliding_window": 1},
        "softcap": {"softcap": 30.0},
        "sinks": {"has_sinks": True, "num_heads": 64, "key_dim": 64, "value_dim": 64},
        "window, softcap and sinks": {"sliding_window": 128, "softcap": 20.0, "has_sinks": True},
        "pages of eight bits": {"has_eight_bits": True},
        "pages of eight bits, float16": {
            "has_eight_bits": True,
            "dtype": torch.float16,
            "key_dim": 80,
            "value_dim": 80,
        },
        "rotary positions": {"rotary_dim": 128},
        "rotary positions of some columns": {"rotary_dim": 32, "key_dim": 96, "value_dim": 96},
        "beyond 2^31 elements": {"first_page": 140_000},
    }
    ragged = [
        AttentionCase(f"{kind}, {batch}", lengths, **options)
        for kind, options in kinds.items()
        for batch, lengths in (("decodes", DECODES), ("mixed", MIXED))
    ]
    return (*ragged, AttentionCase("long contexts beside a chunk", LONG))


def attention_error(case: AttentionCase, attend: Callable[..., Tensor], device: torch.device) -> float:
    """The largest difference of an element of ``attend``'s, called as the op, from float64's; infinity if one is no
    number."""
    arguments = draw_arguments(case, device)
    exact = paged_attention_reference(**exact_arguments(arguments, case))
    error = float((attend(**arguments).double() - exact).abs().max())
    return math.inf if math.isnan(error) else error


def draw_arguments(case: AttentionCase, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """The op's arguments; the pages hold what came before the new tokens."""
    draw = _Draw(case.dtype, device, seed)
    cache = _Cache(case, draw)
    slots = [cache.place(row, *lengths) for row, lengths in enumerate(case.lengths)]
    starts = torch.tensor([0, *(num_new for num_new, _ in case.lengths)]).cumsum(0)
    num_tokens = int(starts[-1])
    arguments = {
        "query": draw(num_tokens, case.num_heads, case.key_dim),
        "key": draw(num_tokens, case.num_kv_heads, case.key_dim),
        "value": draw(num_tokens, case.num_kv_heads, case.value_dim),
        "key_pages": cache.pages[0],
        "value_pages": cache.pages[1],
        "slot_mapping": torch.cat(slots),
        "page_table": cache.table,
        "query_start": starts.to(device, torch.int32),
        "context_lens": torch.tensor([total for _, total in case.lengths]).to(device, torch.int32),
        "scale": case.key_dim**-0.5,
        "sliding_window": case.sliding_window,
        "softcap": case.softcap,
        "sinks": draw(case.num_heads) if case.has_sinks else None,
    }
    if case.rotary_dim:
        angles = 6 * draw(num_tokens, case.rotary_dim // 2).repeat(1, 2)
        arguments |= {"cos": angles.cos(), "sin": angles.sin()}
    return _with_eight_bits(arguments) if case.has_eight_bits else arguments


def _with_eight_bits(arguments: dict[str, Any]) -> dict[str, Any]:
    """With the past rounded. No number is as large as 7, the most that pages can hold with this scale."""
    scale = torch.full((arguments["key"].shape[1],), 2.0**-6, device=arguments["key"].device)
    pages = {name: to_eight_bits(arguments[name], scale) for name in ("key_pages", "value_pages")}
    return {**arguments, **pages, "key_scales": scale, "value_scales": scale}


def _as_stored(arguments: dict[str, Any]) -> dict[str, Any]:
    """Of pages of eight bits the numbers that they stand for, and new keys and values rounded as they will be."""
    plain = dict(arguments)
    for name in ("key", "value"):
        scale = plain.pop(f"{name}_scales")
        plain[name] = from_eight_bits(to_eight_bits(arguments[name], scale), scale)
        plain[f"{name}_pages"] = from_eight_bits(arguments[f"{name}_pages"], scale)
    return plain


def exact_arguments(arguments: dict[str, Any], case: AttentionCase) -> dict[str, Any]:
    """The same in float64, without the unused beginning of the cache."""
    moved = _as_stored(arguments) if case.has_eight_bits else arguments
    moved = {
        **moved,
        "key_pages": moved["key_pages"][case.first_page :],
        "value_pages": moved["value_pages"][case.first_page :],
        "slot_mapping": arguments["slot_mapping"] - case.first_page * case.page_size,
        "page_table": arguments["page_table"] - case.first_page,
    }
    return {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in moved.items()
    }


class _Draw:
    """Normal numbers of one type on one device."""

    def __init__(self, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        self.dtype = dtype
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device).to(self.dtype)


class _Cache:
    """Twice as many pages as the batch needs, handed out in random order."""

    def __init__(self, case: AttentionCase, draw: _Draw) -> None:
        self._case = case
        self._draw = draw
        num_pages = [-(-total // case.page_size) for _, total in case.lengths]
        num_used = 2 * sum(num_pages)
        order = torch.randperm(num_used, generator=draw.generator, device=draw.device)
        self._free = list((order + case.first_page).split([*num_pages, num_used - sum(num_pages)]))
        self.table = torch.full(
            (len(num_pages), max(num_pages)), case.first_page, dtype=torch.int32, device=draw.device
        )
        self.pages = [self._poisoned(case.first_page + num_used, dim) for dim in (case.key_dim, case.value_dim)]

    def _poisoned(self, num_pages: int, dim: int) -> Tensor:
        shape = (num_pages, self._case.page_size, self._case.num_kv_heads, dim)
        pages = torch.empty(shape, dtype=self._draw.dtype, device=self._draw.device)
        pages[self._case.first_page :] = torch.nan
        return pages

    def place(self, row: int, num_new: int, total: int) -> Tensor:
        """Gives sequence ``row`` its pages, fills in its past, and returns the slots of its new tokens."""
        own = self._free[row]
        self.table[row, : len(own)] = own
        offsets = torch.arange(self._case.page_size, device=own.device)
        slots = (own[:, None] * self._case.page_size + offsets).flatten()[:total]
        past = slots[: total - num_new]
        for pages in self.pages:
            pages.flatten(0, 1)[past] = self._draw(len(past), *pages.shape[2:])
        return slots[total - num_new :]
