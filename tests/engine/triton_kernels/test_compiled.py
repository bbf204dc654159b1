"""The kernels that ship, compiled for chips that are not here: no spilled registers, shared memory within the chip's,
matrix instructions and asynchronous copies where they belong. HEADWAY_ALL_KERNELS=1 takes every configuration, not only
the most common ones (`make test-kernels`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch

from headway.engine.triton_kernels.attend import decode_launches, mixed_launch
from headway.engine.triton_kernels.launch import Chip, Launch
from headway.engine.triton_kernels.nucleus import settle_launch
from headway.engine.triton_kernels.splits import MAX_KEYS
from headway.engine.triton_kernels.tiles import SHARED_BYTES
from headway.engine.triton_kernels.write import rotate_launch, write_launch
from tests.engine.triton_kernels.ahead_of_time import Compiled, compile_launch
from tests.engine.triton_kernels.shapes import unreal, unreal_batch, unreal_output

ALL = os.environ.get("HEADWAY_ALL_KERNELS") == "1"
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Case:
    """A kernel in one configuration."""

    kernel: str
    capability: int
    shape: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.kernel, str(self.capability), *(f"{name}={value}" for name, value in self.shape.items())])

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def is_attention(self) -> bool:
        return self.kernel in ("mixed", "decode")

    def launch(self) -> Launch:
        if self.kernel == "settle":
            rows, wide = unreal(8, dtype=torch.int64), unreal(8, 128_256, dtype=torch.int64)
            return settle_launch(rows, rows, unreal(8, dtype=torch.bool), wide, rows, unreal(8, dtype=torch.float64))
        # Few and long, so that decodes are split.
        batch = unreal_batch(**{"num_tokens": 8, "num_sequences": 8, "max_keys": 32_768, **self.shape})
        output, chip = unreal_output(batch), Chip(self.capability, 132)
        if self.kernel == "mixed":
            return mixed_launch(batch, output, chip, skip_decodes=batch.max_keys > MAX_KEYS)
        if self.kernel in ("decode", "combine"):
            return decode_launches(batch, output, chip)[self.kernel == "combine"]
        key, value = (
            unreal(8, batch.num_kv_heads, pages.shape[3], dtype=batch.query.dtype)
            for pages in (batch.key_pages, batch.value_pages)
        )
        written = (key, value, batch.key_pages, batch.value_pages, unreal(8, dtype=torch.int64))
        if self.kernel == "write":
            return write_launch(*written, batch.scales)
        angles = unreal(8, key.shape[2], dtype=key.dtype)
        return rotate_launch(batch.query, batch.query, *written[:2], angles, angles, *written[2:], batch.scales)


def cases() -> Iterator[Case]:
    for capability in (90, 80):
        for kernel in ("mixed", "decode"):
            yield Case(kernel, capability)
            yield Case(kernel, capability, {"dim": 64})
        for kernel in ("combine", "write", "rotate", "settle"):
            yield Case(kernel, capability)
    for kernel in ("mixed", "decode", "write", "rotate"):
        yield Case(kernel, 90, {"page_dtype": FP8})
    if ALL:
        yield from further_cases()


def further_cases() -> Iterator[Case]:
    for capability in (90, 80):
        for kernel in ("mixed", "decode"):
            for dim in (80, 96, 112, 160, 192, 256):
                yield Case(kernel, capability, {"dim": dim})
            for dim in (64, 128, 256):
                yield Case(kernel, capability, {"dim": dim, "dtype": torch.float16})
                yield Case(kernel, capability, {"dim": dim, "softcap": 30.0, "sliding_window": 512})
                yield Case(kernel, capability, {"dim": dim, "dtype": torch.float32})
            yield Case(kernel, capability, {"dim": 192, "value_dim": 128})
            yield Case(kernel, capability, {"dim": 64, "num_heads": 71, "num_kv_heads": 1})
            yield Case(kernel, capability, {"dim": 256, "num_heads": 64, "num_kv_heads": 1})
            yield Case(kernel, capability, {"max_keys": 256})
            yield Case(kernel, capability, {"sinks": unreal(32, dtype=torch.bfloat16)})
            for num_kv_heads in (1, 4, 32):
                yield Case(kernel, capability, {"num_kv_heads": num_kv_heads})
            for page_size in (32, 64, 128):
                yield Case(kernel, capability, {"page_size": page_size})
        yield Case("write", capability, {"dim": 80, "num_kv_heads": 32})
        yield Case("combine", capability, {"dim": 256})
    for capability in (89, 90):
        for kernel in ("mixed", "decode", "write", "rotate"):
            for dim in (64, 128, 256):
                yield Case(kernel, capability, {"dim": dim, "page_dtype": FP8})
    for capability in (89, 100, 120):
        for kernel in ("mixed", "decode"):
            for dim in (64, 96, 128, 256):
                yield Case(kernel, capability, {"dim": dim})


CASES = list(cases())


@cache
def compiled(case: Case) -> Compiled:
    return compile_launch(case.launch(), case.capability)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_fits_the_chip(case: Case) -> None:
    kernel = compiled(case)
    assert (kernel.num_spills, kernel.stack_bytes) == (0, 0), kernel.num_registers
    assert kernel.shared_bytes <= SHARED_BYTES[case.capability]


@pytest.mark.parametrize("case", [case for case in CASES if case.is_attention and case.capability < 100], ids=str)
def test_attention_multiplies_with_matrix_instructions_and_copies_ahead(case: Case) -> None:
    if case.shape.get("dtype") is torch.float32:
        pytest.skip("float32 is not rounded to the types of matrix instructions")
    kernel = compiled(case)
    # The warpgroup's instruction takes 64 rows; a decode has 16.
    assert kernel.count("HGMMA" if case.kernel == "mixed" and case.capability == 90 else "HMMA") > 0
    # Keys and values come in pieces of 16 bytes, past the first-level cache.
    assert kernel.count(r"LDGSTS\S*\.128") > 0


@pytest.mark.parametrize("case", [case for case in CASES if case.is_attention and case.capability == 90], ids=str)
def test_no_product_runs_on_while_its_registers_may_be_overwritten(case: Case) -> None:
    """Triton does not prevent it (https://github.com/triton-lang/triton/issues/9433), so nothing may be pending."""
    assert compiled(case).num_pending_products == 0


@pytest.mark.parametrize("kernel", ["write", "rotate"])
def test_a_nan_is_not_rounded_to_a_number(kernel: str) -> None:
    """The plain minimum and maximum of a NaN are the other number. (The interpreter has no NaN of eight bits.)"""
    ptx = compiled(Case(kernel, 90, {"page_dtype": FP8})).ptx
    assert set(re.findall(r"\b(?:min|max)\.(\S*)f32", ptx)) == {"NaN."}


def test_a_kernel_that_spills_is_noticed() -> None:
    case = Case("mixed", 90)
    launch = case.launch()
    few = Launch(launch.kernel, launch.grid, launch.arguments, launch.constants, num_warps=4, num_stages=3)
    kernel = compile_launch(few, 90)
    assert kernel.num_spills > 0
    assert kernel.stack_bytes > 0
