"""One suite for every implementation of ``headway::paged_attention``, against dense attention in float64."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from headway.engine.attention import paged_attention
from headway.engine.cache_folder import cache_folder
from headway.engine.config import EngineConfig
from headway.engine.native.build import BuildFailedError, find_library
from headway.engine.native.kernels import NativeKernels, load_native
from headway.engine.paged_reference import paged_attention_reference
from headway.engine.triton_kernels.kernels import use_triton_kernels

TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@cache
def native_kernels() -> NativeKernels | None:
    try:
        return load_native(find_library(cache_folder(EngineConfig()) / "native", print))
    except BuildFailedError:
        return None


@dataclass(frozen=True)
class Implementation:
    """One way to compute the op, on one device."""

    name: str
    device: str = "cpu"

    def __call__(self, **arguments: object) -> Tensor:
        if self.name == "reference":
            return paged_attention_reference(**arguments)
        return paged_attention(**arguments)


LEVELS = ["avx512_bf16", "avx512", "avx2", "portable"]
IMPLEMENTATIONS = [
    Implementation("reference"),
    *map(Implementation, LEVELS),
    *([Implementation("op", "cuda")] if torch.cuda.is_available() else []),
]


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def attend(request: pytest.FixtureRequest) -> Iterator[Implementation]:
    if request.param.device == "cuda":
        use_triton_kernels(torch.device("cuda"))
    if request.param.name not in LEVELS:
        yield request.param
        return
    kernels = native_kernels()
    if kernels is None or request.param.name not in kernels.levels:
        pytest.skip("not on this machine")
    kernels.use(request.param.name)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(4)  # so that contexts are split
    yield request.param
    torch.set_num_threads(num_threads)
    kernels.use(kernels.levels[0])


@dataclass(frozen=True)
class Layer:
    """One kind of attention layer."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    value_dim: int = 16
    page_size: int = 8
    scale: float = 0.25
    sliding_window: int = 0
    softcap: float = 0.0
    has_sinks: bool = False

    @property
    def dims(self) -> tuple[int, int]:
        """Of keys and values."""
        return self.head_dim, self.value_dim


@dataclass(frozen=True)
class Batch:
    """A ragged batch in random pages, and what dense attention makes of it."""

    arguments: dict[str, object]
    key_pages: Tensor
    expected: Tensor


LAYERS = {
    "plain": Layer(num_kv_heads=4),
    "grouped": Layer(num_heads=9, num_kv_heads=3, head_dim=64, value_dim=64),
    "one key head": Layer(num_heads=8, num_kv_heads=1),
    "head size 80": Layer(head_dim=80, value_dim=80),
    "head size 96, large pages": Layer(head_dim=96, value_dim=96, page_size=128),
    "an odd head size": Layer(head_dim=17, value_dim=33),
    "head size 128": Layer(head_dim=128, value_dim=128, page_size=16),
    "head size 256": Layer(num_heads=2, num_kv_heads=1, head_dim=256, value_dim=256),
    "values of another width": Layer(head_dim=24, value_dim=16),
    "page size 1": Layer(page_size=1),
    "window": Layer(sliding_window=5),
    "window of one": Layer(sliding_window=1),
    "softcap": Layer(softcap=2.0, scale=1.0),
    "sinks": Layer(has_sinks=True),
    "everything": Layer(num_heads=6, num_kv_heads=3, sliding_window=7, softcap=3.0, scale=0.5, has_sinks=True),
}
LENGTHS = {
    "decodes": [(1, 1), (1, 2), (1, 17), (1, 60), (1, 8)],
    "one decode": [(1, 33)],
    "one long decode": [(1, 700)],
    "a long chunk": [(70, 300), (1, 1)],
    "many decodes": [*((1, 1 + 7 * n % 41) for n in range(40)), (3, 9)],
    "whole prompts": [(5, 5), (24, 24), (2, 2)],
    "mixed": [(1, 40), (1, 3), (9, 30), (2, 2), (1, 16), (16, 48), (30, 30)],
}
"""(new tokens, context length) of each sequence."""


def make_batch(layer: Layer, lengths: list[tuple[int, int]], dtype: torch.dtype, device: str, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        # Rounded to the tested type first: the error to measure is the op's, not the inputs'.
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    num_pages = [-(-context // layer.page_size) for _, context in lengths]
    ids = random.Random(seed).sample(range(2 * sum(num_pages)), sum(num_pages))
    page_table = torch.full((len(lengths), max(num_pages) + 1), ids[0], dtype=torch.int32)
    key_pages, value_pages = (poisoned_pages(layer, 2 * sum(num_pages), dim, dtype) for dim in layer.dims)
    sinks = draw(layer.num_heads) if layer.has_sinks else None
    queries, keys, values, slots, expected = [], [], [], [], []
    for row, (num_new, context) in enumerate(lengths):
        pages = [ids.pop() for _ in range(num_pages[row])]
        page_table[row, : len(pages)] = torch.tensor(pages)
        slot = slots_of(pages, context, layer.page_size)
        query, key = draw(num_new, layer.num_heads, layer.head_dim), draw(context, layer.num_kv_heads, layer.head_dim)
        value = draw(context, layer.num_kv_heads, layer.value_dim)
        old = slot[: context - num_new]
        key_pages.flatten(0, 1)[old], value_pages.flatten(0, 1)[old] = key[: len(old)], value[: len(old)]
        queries.append(query)
        keys.append(key[len(old) :])
        values.append(value[len(old) :])
        slots.append(slot[len(old) :])
        expected.append(dense_attention(layer, query.double(), key.double(), value.double(), sinks))
    arguments = {
        "query": torch.cat(queries),
        "key": torch.cat(keys),
        "value": torch.cat(values),
        "key_pages": key_pages,
        "value_pages": value_pages,
        "slot_mapping": torch.cat(slots),
        "page_table": page_table,
        "query_start": torch.tensor([0, *(num_new for num_new, _ in lengths)]).cumsum(0).int(),
        "context_lens": torch.tensor([context for _, context in lengths]).int(),
        "sinks": sinks,
    }
    moved = {name: None if tensor is None else tensor.to(device) for name, tensor in arguments.items()}
    rule = {"scale": layer.scale, "sliding_window": layer.sliding_window, "softcap": layer.softcap}
    return Batch({**moved, **rule}, moved["key_pages"], torch.cat(expected))


def poisoned_pages(layer: Layer, num_pages: int, dim: int, dtype: torch.dtype) -> Tensor:
    return torch.full((num_pages, layer.page_size, layer.num_kv_heads, dim), torch.nan, dtype=dtype)


def slots_of(pages: list[int], num_tokens: int, page_size: int) -> Tensor:
    """Where each token of a sequence lies."""
    return torch.tensor([pages[t // page_size] * page_size + t % page_size for t in range(num_tokens)])


def dense_attention(layer: Layer, query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None) -> Tensor:
    """The definition, one query at a time: query [n, Hq, D] are the last tokens of key [L, Hkv, D]."""
    group_size = layer.num_heads // layer.num_kv_heads
    output = query.new_zeros(len(query), layer.num_heads, layer.value_dim)
    for row in range(len(query)):
        last = len(key) - len(query) + row
        first = max(0, last + 1 - layer.sliding_window) if layer.sliding_window else 0
        for head in range(layer.num_heads):
            scores = key[first : last + 1, head // group_size] @ query[row, head] * layer.scale
            if layer.softcap:
                scores = layer.softcap * torch.tanh(scores / layer.softcap)
            weights = scores.exp()
            total = weights.sum() + (0.0 if sinks is None else sinks[head].double().exp())
            output[row, head] = weights @ value[first : last + 1, head // group_size] / total
    return output


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_op_equals_dense_attention(layer: str, lengths: str, dtype: torch.dtype, attend: Implementation) -> None:
    batch = make_batch(LAYERS[layer], LENGTHS[lengths], dtype, attend.device)
    output = attend(**batch.arguments)
    assert output.dtype == dtype
    torch.testing.assert_close(output.double().cpu(), batch.expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("seed", range(20))
def test_random_batches_equal_dense_attention(seed: int, attend: Implementation) -> None:
    chance = random.Random(seed)
    lengths = []
    for _ in range(chance.randint(1, 8)):
        context = chance.randint(1, 70)
        lengths.append((1 if chance.random() < 0.5 else chance.randint(1, context), context))
    layer = replace(
        chance.choice(list(LAYERS.values())),
        page_size=chance.choice([1, 3, 16, 64]),
        sliding_window=chance.choice([0, 0, chance.randint(1, 70)]),
    )
    batch = make_batch(layer, lengths, torch.float64, attend.device, seed)
    torch.testing.assert_close(attend(**batch.arguments).cpu(), batch.expected, atol=1e-12, rtol=1e-12)


def test_only_the_new_tokens_slots_are_written(attend: Implementation) -> None:
    batch = make_batch(LAYERS["grouped"], LENGTHS["mixed"], torch.float32, attend.device)
    before = batch.key_pages.clone().flatten(0, 1)
    attend(**batch.arguments)
    slots, after = batch.arguments["slot_mapping"], batch.key_pages.flatten(0, 1)
    torch.testing.assert_close(after[slots], batch.arguments["key"], rtol=0, atol=0)
    others = torch.ones(len(after), dtype=torch.bool, device=attend.device).index_fill(0, slots, False)
    torch.testing.assert_close(after[others], before[others], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_nan_reaches_the_queries_that_see_it_and_no_others(dtype: torch.dtype, attend: Implementation) -> None:
    batch = make_batch(LAYERS["grouped"], [(1, 40), (1, 70), (9, 30)], dtype, attend.device)
    batch.arguments["key"][1] = torch.nan
    is_nan = attend(**batch.arguments).isnan().flatten(1)
    assert is_nan[1].all()
    assert not is_nan[[0, *range(2, 11)]].any()


def test_the_op_is_sound_under_the_compiler(attend: Implementation) -> None:
    arguments = make_batch(LAYERS["everything"], LENGTHS["mixed"], torch.float32, attend.device).arguments
    names = ["query", "key", "value", "key_pages", "value_pages", "slot_mapping", "page_table", "query_start"]
    names += ["context_lens", "scale", "sliding_window", "softcap", "sinks"]
    # opcheck compares results, and NaN equals nothing.
    values = [value.nan_to_num() if isinstance(value, Tensor) else value for value in map(arguments.get, names)]
    torch.library.opcheck(
        torch.ops.headway.paged_attention.default, values, test_utils=("test_schema", "test_faketensor")
    )
