"""Batches for paged attention on a device, with what a float64 computation makes of them.

Pages lie in random order, everything that no query may see is NaN, and the cache may be so large that its elements
cannot be counted in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
    first_page: int = 0
    """Pages below are there and unused."""


def attention_cases() -> tuple[AttentionCase, ...]:
    batches = {"decodes": DECODES, "mixed": MIXED}
    sizes = [(64, 64), (80, 80), (96, 96), (256, 256), (192, 128), (17, 33)]
    kinds: dict[str, dict[str, Any]] = {
        "bfloat16": {},
        "float16": {"dtype": torch.float16},
        "float32": {"dtype": torch.float32},
        **{f"heads of {key}, {value}": {"key_dim": key, "value_dim": value} for key, value in sizes},
        **{f"{heads} query heads to one": {"num_heads": 8 * heads} for heads in (1, 3, 7, 8)},
        "one key head for 71": {"num_heads": 71, "num_kv_heads": 1, "key_dim": 64, "value_dim": 64},
        **{f"pages of {size}": {"page_size": size} for size in (32, 64, 128)},
        "window": {"sliding_window": 100},
        "window of one": {"sliding_window": 1},
        "softcap": {"softcap": 30.0},
        "sinks": {"has_sinks": True, "num_heads": 64, "key_dim": 64, "value_dim": 64},
        "window, softcap and sinks": {"sliding_window": 128, "softcap": 20.0, "has_sinks": True},
        "beyond 2^31 elements": {"first_page": 140_000},
    }
    ragged = [
        AttentionCase(f"{kind}, {batch}", lengths, **options)
        for kind, options in kinds.items()
        for batch, lengths in batches.items()
    ]
    return (*ragged, AttentionCase("long contexts beside a chunk", LONG))


@dataclass(frozen=True, slots=True)
class Inputs:
    """The op's arguments, and the same in float64 over a cache without its unused beginning."""

    arguments: dict[str, Any]
    exact: dict[str, Any] = field(repr=False)


def draw_inputs(case: AttentionCase, device: torch.device, seed: int = 0) -> Inputs:
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32).to(case.dtype)

    num_pages = [-(-total // case.page_size) for _, total in case.lengths]
    ids = torch.randperm(2 * sum(num_pages), generator=generator, device=device) + case.first_page
    table = torch.full((len(case.lengths), max(num_pages)), case.first_page, dtype=torch.int32, device=device)
    pages = [
        torch.full((int(ids.max()) + 1, case.page_size, case.num_kv_heads, dim), torch.nan, device=device).to(case.dtype)
        if not case.first_page
        else torch.empty((int(ids.max()) + 1, case.page_size, case.num_kv_heads, dim), dtype=case.dtype, device=device)
        for dim in (case.key_dim, case.value_dim)
    ]
    slots = []
    for row, (num_new, total) in enumerate(case.lengths):
        own, ids = ids[: num_pages[row]], ids[num_pages[row] :]
        table[row, : len(own)] = own
        slot = (own[:, None] * case.page_size + torch.arange(case.page_size, device=device)).flatten()[:total]
        for each in pages:
            each.flatten(0, 1)[slot[: total - num_new]] = draw(total - num_new, *each.shape[2:])
        slots.append(slot[total - num_new :])
    num_tokens = sum(num_new for num_new, _ in case.lengths)
    starts = torch.tensor([0, *(num_new for num_new, _ in case.lengths)]).cumsum(0)
    arguments: dict[str, Any] = {
        "query": draw(num_tokens, case.num_heads, case.key_dim),
        "key": draw(num_tokens, case.num_kv_heads, case.key_dim),
        "value": draw(num_tokens, case.num_kv_heads, case.value_dim),
        "key_pages": pages[0],
        "value_pages": pages[1],
        "slot_mapping": torch.cat(slots),
        "page_table": table,
        "query_start": starts.to(device, torch.int32),
        "context_lens": torch.tensor([total for _, total in case.lengths]).to(device, torch.int32),
        "scale": case.key_dim**-0.5,
        "sliding_window": case.sliding_window,
        "softcap": case.softcap,
        "sinks": draw(case.num_heads) if case.has_sinks else None,
    }
    return Inputs(arguments, _exact(arguments, case))


def _exact(arguments: dict[str, Any], case: AttentionCase) -> dict[str, Any]:
    first = case.first_page
    moved = {
        **arguments,
        "key_pages": arguments["key_pages"][first:],
        "value_pages": arguments["value_pages"][first:],
        "slot_mapping": arguments["slot_mapping"] - first * case.page_size,
        "page_table": arguments["page_table"] - first,
    }
    return {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in moved.items()
    }


def attention_error(case: AttentionCase, attend: Callable[..., Tensor], device: torch.device) -> float:
    """The largest difference of an element from float64's; infinity if there is no number."""
    inputs = draw_inputs(case, device)
    exact = paged_attention_reference(**inputs.exact)
    error = (attend(**inputs.arguments).double() - exact).abs().max().item()
    return error if error == error else torch.inf
