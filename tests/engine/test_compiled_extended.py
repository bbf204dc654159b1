"""Compiled steps whose attention does more: pages of eight bits, and positions that it turns itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from headway.engine.calibration import calibrate
from headway.engine.compiled import CompiledForward, compile_forward
from headway.engine.deferred_rotary import defer_rotary
from headway.engine.forward import EagerForward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel
from tests.engine import test_compiled
from tests.engine.test_compiled import NUM_PAGES, PAGE_SIZE, STEPS, all_steps, load, make_step, num_graphs, pages_of

fresh_compiler = test_compiled.fresh_compiler


def extended(kind: str) -> tuple[LoadedModel, list[KvCache]]:
    """Two caches of zeros."""
    loaded = load(kind, torch.float32)
    assert defer_rotary(loaded.model) == len(loaded.layers)
    scales = calibrate(loaded, PAGE_SIZE)
    caches = [KvCache(loaded, NUM_PAGES, PAGE_SIZE, scales) for _ in range(2)]
    for cache in caches:
        for pages in pages_of(cache):
            pages.zero_()
    return loaded, caches


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3"])
def test_one_graph_serves_steps_of_all_shapes(kind: str, tmp_path: Path) -> None:
    loaded, (cache, plain_cache) = extended(kind)
    plain = EagerForward(loaded, plain_cache)
    forward = compile_forward(loaded, cache, tmp_path, "eager")
    assert isinstance(forward, CompiledForward)
    for inputs in all_steps():
        torch.testing.assert_close(forward(inputs), plain(inputs), rtol=1e-3, atol=1e-3)
    for ours, theirs in zip(pages_of(cache), pages_of(plain_cache), strict=True):
        assert torch.equal(ours[:NUM_PAGES].view(torch.uint8), theirs[:NUM_PAGES].view(torch.uint8))
    assert num_graphs() == 1


def test_the_code_generator_leaves_turning_to_the_op_and_copies_no_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    loaded, (cache, plain_cache) = extended("llama")
    forward, codes = run_and_get_code(compile_forward, loaded, cache, tmp_path / "inductor")
    assert isinstance(forward, CompiledForward)
    inputs = make_step(STEPS[0], 2)
    torch.testing.assert_close(forward(inputs), EagerForward(loaded, plain_cache)(inputs), rtol=1e-3, atol=1e-3)
    assert codes[0].count("torch.ops.headway.paged_attention.extended(") == len(loaded.layers)
    assert f"({NUM_PAGES + 1}," not in "".join(line for line in codes[0].splitlines() if "empty" in line)
