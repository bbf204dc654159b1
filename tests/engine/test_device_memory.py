"""What is asked of a GPU, and in which order: with one that only counts."""

from __future__ import annotations

import pytest
import torch

from headway.engine.device_memory import bytes_taken_by_others, measure_use
from headway.engine.page_memory import DeviceUse

GPU = torch.device("cuda", 0)


class CountingGpu:
    """Of 1,000 bytes, as torch.cuda's functions tell of it."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.outside = 0
        self.allocated = self.reserved = self.peak = 0

    def allocate(self, num_bytes: int) -> None:
        self.allocated += num_bytes
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated)

    def free(self, num_bytes: int) -> None:
        self.allocated -= num_bytes

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return 1000 - self.others - self.outside - self.reserved, 1000

    def empty_cache(self) -> None:
        self.reserved = self.allocated

    def reset_peak_memory_stats(self, device: torch.device) -> None:
        self.peak = self.allocated

    def memory_allocated(self, device: torch.device) -> int:
        return self.allocated

    def max_memory_allocated(self, device: torch.device) -> int:
        return self.peak

    def memory_reserved(self, device: torch.device) -> int:
        return self.reserved

    def synchronize(self, device: torch.device) -> None:
        pass


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> CountingGpu:
    gpu = CountingGpu(others=70)
    for name in ("mem_get_info", "empty_cache", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(gpu, name))
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, getattr(gpu, name))
    return gpu


def test_a_step_takes_what_it_holds_at_its_peak_beside_the_weights(gpu: CountingGpu) -> None:
    others = bytes_taken_by_others(GPU)
    gpu.allocate(500)
    gpu.free(100)  # loading took more for a while

    def step() -> None:
        gpu.allocate(90)
        gpu.free(90)
        gpu.allocate(30)
        gpu.free(30)
        gpu.outside += 11

    assert measure_use(GPU, others, step) == DeviceUse(total=1000, others=70, weights=400, step=90, outside=11)
    assert gpu.reserved == 400


def test_what_torch_holds_already_is_this_processs_own(gpu: CountingGpu) -> None:
    gpu.allocate(200)
    assert bytes_taken_by_others(GPU) == 70


def test_others_that_leave_meanwhile_are_not_taken_for_room(gpu: CountingGpu) -> None:
    use = measure_use(GPU, 70, lambda: setattr(gpu, "others", 0))
    assert (use.others, use.outside) == (70, 0)


def test_a_cpu_is_not_asked() -> None:
    assert bytes_taken_by_others(torch.device("cpu")) == 0
