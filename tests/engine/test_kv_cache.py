from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.core.errors import SettingError
from headway.engine.config import Device, EngineConfig
from headway.engine.kv_cache import KvCache, num_pages_for, page_bytes
from headway.engine.load import LoadedModel, load_model
from headway.engine.page_memory import PageMemory
from headway.engine.page_scales import EIGHT_BITS, Scales


def load(model: Path) -> LoadedModel:
    return load_model(EngineConfig(model=str(model), device=Device.CPU), print)


def memory(num_bytes: int) -> PageMemory:
    return PageMemory(num_bytes, "kv_memory", str(num_bytes))


def test_the_pages_are_as_many_as_the_memory_holds(tiny_llama: Path) -> None:
    loaded = load(tiny_llama)
    assert page_bytes(loaded, 16, torch.float32) == 2 * 2 * 2 * 8 * 16 * 4
    config = EngineConfig()
    cache = KvCache(loaded, num_pages_for(loaded, config, memory(100_000), print), config.page_size)
    assert cache.num_pages == 100_000 // 4096
    assert cache.max_model_len == 256
    assert sum(pages.nbytes for pages in (*cache.key_pages, *cache.value_pages)) == (cache.num_pages + 1) * 4096


def test_one_page_more_belongs_to_nobody(tiny_llama: Path) -> None:
    cache = KvCache(load(tiny_llama), num_pages=3, page_size=16)
    assert (cache.num_pages, cache.scratch_page) == (3, 3)
    assert cache.max_model_len == 48
    assert {len(pages) for pages in (*cache.key_pages, *cache.value_pages)} == {4}


def test_eight_bits_hold_four_times_as_many_tokens_as_float32(tiny_llama: Path) -> None:
    loaded = load(tiny_llama)
    ones = torch.ones(2)
    num_pages = num_pages_for(loaded, EngineConfig(), memory(100_000), print, EIGHT_BITS)
    cache = KvCache(loaded, num_pages, 16, [Scales(ones, ones)] * 2)
    assert num_pages == 100_000 // 1024
    assert {pages.dtype for pages in (*cache.key_pages, *cache.value_pages)} == {EIGHT_BITS}
    assert sum(pages.nbytes for pages in (*cache.key_pages, *cache.value_pages)) == (num_pages + 1) * 1024


def test_a_long_model_gives_way_to_a_small_memory_with_a_message(tiny_llama: Path) -> None:
    loaded, messages = load(tiny_llama), []
    cache = KvCache(loaded, num_pages_for(loaded, EngineConfig(), memory(10_000), messages.append), 16)
    assert cache.max_model_len == 32
    assert "32 tokens" in messages[0]


def test_a_length_that_was_asked_for_and_does_not_fit_is_an_error(tiny_llama: Path) -> None:
    config = EngineConfig(model=str(tiny_llama), device=Device.CPU, max_model_len=200)
    with pytest.raises(SettingError, match="needs 53248 bytes of 10000") as caught:
        num_pages_for(load_model(config, print), config, memory(10_000), print)
    assert caught.value.setting == "kv_memory"


def test_the_error_names_the_setting_that_the_memory_comes_from(tiny_llama: Path) -> None:
    with pytest.raises(SettingError) as caught:
        num_pages_for(load(tiny_llama), EngineConfig(), PageMemory(100, "memory_fraction", 0.2), print)
    assert (caught.value.setting, caught.value.value) == ("memory_fraction", 0.2)
