"""The same attention in other implementations: the same numbers, in the layout that each of them likes best.

Ours is the op as models call it: it writes the new keys and values into pages of random order and reads all of them
from there. The others read contiguous tensors, which costs them less. Their outputs must agree with ours before their
times are worth anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from headway.engine.attention import paged_attention
from loadtest.gpu.bench import Bench
from loadtest.gpu.cases import TOLERANCES
from loadtest.gpu.checks import AbsentError, Finding, Item, Part, Verdict, one_line
from loadtest.gpu.timing import seconds_per_call

FIGURES = ("rival_times_ours_ratio", "ours_seconds", "rival_seconds", "difference")

Attend = Callable[[], Tensor]
"""Gives [sequences, queries, heads, width]."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Sequences of one length, of which the last ``query_len`` tokens are new."""

    query: Tensor
    """[B, L, Hq, D]"""
    key: Tensor
    """[B, S, Hkv, D]"""
    value: Tensor

    @property
    def query_len(self) -> int:
        return self.query.shape[1]

    @property
    def context_len(self) -> int:
        return self.key.shape[1]

    @property
    def is_prompt(self) -> bool:
        """Whether all tokens are new: no query is alone, and each sees another number of keys."""
        return self.query_len == self.context_len

    @property
    def heads_first(self) -> tuple[Tensor, Tensor, Tensor]:
        """As torch's own functions take them."""
        query, key, value = (tensor.transpose(1, 2).contiguous() for tensor in (self.query, self.key, self.value))
        return query, key, value


def items(bench: Bench) -> Sequence[Item]:
    return [Item(_name(work, rival), FIGURES) for work in _problems(bench) for rival in RIVALS]


def measure(bench: Bench) -> Iterator[Finding]:
    for work, make in _problems(bench).items():
        problem = make()
        attend = ours(problem, bench.sizes.page_size)
        expected, seconds = attend(), seconds_per_call(attend, bench.device, bench.num_repeats)
        for name, prepare in RIVALS.items():
            bench.deadline.require()
            yield _beside(bench, _name(work, name), partial(prepare, problem), expected, seconds)


def _beside(bench: Bench, name: str, prepare: Callable[[bool], Attend], expected: Tensor, seconds: float) -> Finding:
    """What breaks off one rival leaves the others."""
    try:
        return Finding(name, _compare(bench, prepare(bench.sizes.compiles_rivals), expected, seconds))
    except AbsentError as absence:
        return Finding(name, note=str(absence), verdict=Verdict.ABSENT)
    except Exception as error:
        return Finding(name, note=one_line(error), verdict=Verdict.FAILED)


def _compare(bench: Bench, rival: Attend, expected: Tensor, seconds: float) -> dict[str, float]:
    difference = float((rival() - expected).abs().max())
    if not difference <= 2 * TOLERANCES[expected.dtype]:
        raise ValueError(f"it computes something else: the difference is {difference:.1e}")
    theirs = seconds_per_call(rival, bench.device, bench.num_repeats)
    return dict(zip(FIGURES, (theirs / seconds, seconds, theirs, difference), strict=True))


def _problems(bench: Bench) -> dict[str, Callable[[], Problem]]:
    (num_decodes, context), (num_prompts, length) = bench.sizes.rival_decodes, bench.sizes.rival_prompts
    return {
        f"{num_decodes} decodes of {context}": partial(draw_problem, bench, num_decodes, 1, context),
        f"{num_prompts} prompts of {length}": partial(draw_problem, bench, num_prompts, length, length),
    }


def draw_problem(bench: Bench, num_sequences: int, query_len: int, context_len: int) -> Problem:
    model = bench.sizes.model
    generator = torch.Generator(bench.device).manual_seed(0)

    def draw(num_tokens: int, num_heads: int) -> Tensor:
        shape = (num_sequences, num_tokens, num_heads, model.head_dim)
        return torch.randn(shape, generator=generator, device=bench.device).to(model.dtype)

    return Problem(
        draw(query_len, model.num_heads), draw(context_len, model.num_kv_heads), draw(context_len, model.num_kv_heads)
    )


def ours(problem: Problem, page_size: int) -> Attend:
    """The op, over pages in random order that hold what came before."""
    (num_sequences, context_len), device = problem.key.shape[:2], problem.key.device
    num_pages = -(-context_len // page_size)
    table = torch.randperm(num_sequences * num_pages, device=device).view(num_sequences, num_pages)
    slots = (table[:, :, None] * page_size + torch.arange(page_size, device=device)).flatten(1)[:, :context_len]
    num_past = context_len - problem.query_len
    pages = []
    for tensor in (problem.key, problem.value):
        paged = tensor.new_zeros(num_sequences * num_pages, page_size, *tensor.shape[2:])
        paged.flatten(0, 1)[slots[:, :num_past].flatten()] = tensor[:, :num_past].flatten(0, 1)
        pages.append(paged)
    ends = torch.arange(num_sequences + 1, device=device, dtype=torch.int32) * problem.query_len
    arguments = (
        problem.query.flatten(0, 1),
        problem.key[:, num_past:].flatten(0, 1),
        problem.value[:, num_past:].flatten(0, 1),
        *pages,
        slots[:, num_past:].flatten().contiguous(),  # of one token each, flatten gives a view with gaps
        table.int(),
        ends,
        torch.full((num_sequences,), context_len, dtype=torch.int32, device=device),
        problem.query.shape[-1] ** -0.5,
    )
    return lambda: paged_attention(*arguments).view(problem.query.shape)


def sdpa(problem: Problem, compiles: bool) -> Attend:
    """torch's, whichever backend it chooses."""
    attend = torch.nn.functional.scaled_dot_product_attention
    arguments = problem.heads_first
    return lambda: attend(*arguments, is_causal=problem.is_prompt, enable_gqa=True).transpose(1, 2)


def flex(problem: Problem, compiles: bool) -> Attend:
    """torch's FlexAttention, compiled for these shapes."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attend = torch.compile(flex_attention, dynamic=False) if compiles else flex_attention
    arguments = problem.heads_first
    mask = None
    if problem.is_prompt:
        lengths = (problem.query_len, problem.context_len)
        mask = create_block_mask(_is_seen, None, None, *lengths, device=str(problem.query.device))

    def call() -> Tensor:
        output: Tensor = attend(*arguments, block_mask=mask, enable_gqa=True)
        return output.transpose(1, 2)

    call()
    return call


def _is_seen(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def flash(module_name: str, problem: Problem, compiles: bool) -> Attend:
    """FlashAttention 2 (``flash_attn``) or 3 (``flash_attn_interface``). Raises `AbsentError`."""
    module = _imported(module_name)
    if problem.is_prompt:
        return lambda: _first(module.flash_attn_func(problem.query, problem.key, problem.value, causal=True))
    lengths = torch.full((len(problem.key),), problem.context_len, dtype=torch.int32, device=problem.key.device)
    return lambda: _first(
        module.flash_attn_with_kvcache(problem.query, problem.key, problem.value, cache_seqlens=lengths, causal=True)
    )


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # a library that was built for another torch
        raise AbsentError(f"{name} cannot be imported here: {error}") from error


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Some versions give sums beside it."""
    return output if isinstance(output, Tensor) else output[0]


RIVALS: dict[str, Callable[[Problem, bool], Attend]] = {
    "FlashAttention 3": partial(flash, "flash_attn_interface"),
    "FlashAttention 2": partial(flash, "flash_attn"),
    "FlexAttention": flex,
    "torch's SDPA": sdpa,
}


def _name(work: str, rival: str) -> str:
    return f"{work}, beside {rival}"


PART = Part("rivals", items, measure, min_seconds=30.0)
