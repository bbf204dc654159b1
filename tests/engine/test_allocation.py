"""Which pages an engine gets: their type, their scales, and their number on a GPU that is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from headway.core.errors import SettingError
from headway.core.job import JobKey, SamplingParams
from headway.core.scheduler_config import SchedulerConfig
from headway.engine import allocation, kv_cache, paged_reference
from headway.engine.allocation import allocate_pages, page_scales
from headway.engine.build import assemble
from headway.engine.config import EngineConfig, KvCacheDType
from headway.engine.engine import Engine
from headway.engine.load import LoadedModel
from headway.engine.messages import Submit
from headway.engine.page_memory import DeviceUse, device_memory
from headway.engine.page_scales import EIGHT_BITS

FP8 = EngineConfig(kv_memory="1MiB", kv_cache_dtype=KvCacheDType.FP8)
SCHEDULING = SchedulerConfig(max_num_seqs=4)
SMALL_STEP = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64)
"""Where only what a step is made of counts, and not how large it is."""
PROMPT = tuple(range(100, 150))
GIB = 1024**3


def tokens(engine: Engine, *prompts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What the engine's model says, greedily."""
    said: dict[str, tuple[int, ...]] = {}
    sampling = SamplingParams(max_tokens=20, min_tokens=20, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.submit(Submit(JobKey("acme", str(number)), sampling, prompt, None), 0.0)
    while engine.has_work:
        for output in engine.step(0.0).outputs:
            said[output.key.id] = (*said.get(output.key.id, ()), *output.token_ids)
    return [said[str(number)] for number in range(len(prompts))]


def test_pages_are_of_the_models_type_unless_told_otherwise(smollm2: LoadedModel) -> None:
    cache = allocate_pages(smollm2, replace(FP8, kv_cache_dtype=KvCacheDType.AUTO), SCHEDULING, print)
    assert cache.scales is None
    assert {pages.dtype for pages in cache.key_pages} == {smollm2.dtype}


def test_eight_bits_hold_as_many_more_tokens_as_they_are_smaller(smollm2: LoadedModel) -> None:
    ours, plain = (
        allocate_pages(smollm2, replace(FP8, kv_memory="64MiB", kv_cache_dtype=dtype), SCHEDULING, print)
        for dtype in (KvCacheDType.FP8, KvCacheDType.AUTO)
    )
    assert {pages.dtype for pages in (*ours.key_pages, *ours.value_pages)} == {EIGHT_BITS}
    assert abs(ours.num_pages - smollm2.dtype.itemsize * plain.num_pages) < smollm2.dtype.itemsize


def test_an_engine_serves_with_pages_of_eight_bits_and_says_nearly_the_same(smollm2: LoadedModel) -> None:
    plain = assemble(smollm2, EngineConfig(kv_memory="64MiB"), SCHEDULING, print)
    ours = assemble(smollm2, replace(FP8, kv_memory="64MiB"), SCHEDULING, print)
    expected = tokens(plain, PROMPT, PROMPT[:9])
    found = tokens(ours, PROMPT, PROMPT[:9])
    same = [one == other for a, b in zip(found, expected, strict=True) for one, other in zip(a, b, strict=True)]
    assert len(same) == 40
    assert found[0][0] == expected[0][0]


def test_another_worker_and_a_shared_prefix_go_on_with_the_same_tokens(smollm2: LoadedModel) -> None:
    first, second = (assemble(smollm2, replace(FP8, kv_memory="64MiB"), SCHEDULING, print) for _ in range(2))
    (whole,) = tokens(first, PROMPT)
    assert tokens(first, PROMPT) == [whole]  # from shared pages
    (rest,) = tokens(second, (*PROMPT, *whole[:7]))  # resumed elsewhere, all of it computed anew
    assert rest[:13] == whole[7:]


@dataclass
class MadeUpGpu:
    """Stands where a GPU would be measured; the step is run for real."""

    use: DeviceUse
    num_runs: int = 0

    def measure(self, device: torch.device, others: int, run_largest_step: Callable[[], object]) -> DeviceUse:
        run_largest_step()
        self.num_runs += 1
        return replace(self.use, others=others)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> MadeUpGpu:
    gpu = MadeUpGpu(DeviceUse(80 * GIB, 0, 15 * GIB, 2 * GIB, 0))
    monkeypatch.setattr(allocation, "measure_use", gpu.measure)
    monkeypatch.setattr(allocation, "_is_gpu", lambda loaded: True)
    return gpu


@pytest.fixture
def num_pages_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pages as large as a GPU's, without their memory."""
    asked: list[int] = []

    def make(loaded: LoadedModel, num_pages: int, page_size: int, scales: object) -> kv_cache.KvCache:
        asked.append(num_pages)
        return kv_cache.KvCache(loaded, 1, page_size)

    monkeypatch.setattr(allocation, "KvCache", make)
    return asked


def test_a_gpus_pages_are_what_the_largest_step_leaves(
    tiny: LoadedModel, gpu: MadeUpGpu, num_pages_asked: list[int]
) -> None:
    allocate_pages(replace(tiny, bytes_taken_before=3 * GIB), EngineConfig(), SCHEDULING, print)
    expected = device_memory(replace(gpu.use, others=3 * GIB), 0.9).num_bytes
    assert num_pages_asked == [expected // kv_cache.page_bytes(tiny, 16, tiny.dtype)]
    assert gpu.num_runs == 1


def test_the_step_that_is_measured_reads_the_pages_that_there_will_be(
    smollm2: LoadedModel, gpu: MadeUpGpu, num_pages_asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    in_eight_bits = []
    attend = paged_reference.PagedKeysValues.write

    def watch(pages: paged_reference.PagedKeysValues, *new: torch.Tensor) -> None:
        in_eight_bits.append(pages.scales is not None)
        attend(pages, *new)

    monkeypatch.setattr(paged_reference.PagedKeysValues, "write", watch)
    allocate_pages(smollm2, EngineConfig(kv_cache_dtype=KvCacheDType.FP8), SMALL_STEP, print)
    assert in_eight_bits[-2 * len(smollm2.layers) :] == [True] * 2 * len(smollm2.layers)
    assert num_pages_asked == [device_memory(gpu.use, 0.9).num_bytes // kv_cache.page_bytes(smollm2, 16, EIGHT_BITS)]


def test_memory_that_is_set_is_not_measured(tiny: LoadedModel, gpu: MadeUpGpu, num_pages_asked: list[int]) -> None:
    allocate_pages(tiny, EngineConfig(kv_memory="1GiB"), SCHEDULING, print)
    assert num_pages_asked == [GIB // kv_cache.page_bytes(tiny, 16, tiny.dtype)]
    assert gpu.num_runs == 0


LACK = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_pages_that_do_not_fit_are_the_settings_fault(
    tiny: LoadedModel, gpu: MadeUpGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> kv_cache.KvCache:
        raise LACK

    monkeypatch.setattr(allocation, "KvCache", make)
    with pytest.raises(SettingError, match=r"do not fit.*2\.00 GiB") as caught:
        allocate_pages(tiny, EngineConfig(kv_memory="90GiB"), SCHEDULING, print)
    assert (caught.value.setting, caught.value.value) == ("kv_memory", "90GiB")


def test_so_is_a_largest_step_that_does_not(tiny: LoadedModel, gpu: MadeUpGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise LACK

    monkeypatch.setattr(allocation, "run_largest_step", run)
    with pytest.raises(SettingError, match=r"largest step does not fit.*2\.00 GiB") as caught:
        allocate_pages(tiny, EngineConfig(), SCHEDULING, print)
    assert caught.value.setting == "max_num_batched_tokens"


def test_float64_models_are_told_that_eight_bits_are_not_for_them(tiny: LoadedModel) -> None:
    with pytest.raises(SettingError, match="exact; set it to auto") as caught:
        page_scales(tiny, FP8, print)
    assert caught.value.setting == "kv_cache_dtype"


def test_old_gpus_too(smollm2: LoadedModel, gpu: MadeUpGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    with pytest.raises(SettingError, match=r"8\.6, and 8\.9 is needed; set it to auto") as caught:
        page_scales(smollm2, FP8, print)
    assert caught.value.setting == "kv_cache_dtype"
