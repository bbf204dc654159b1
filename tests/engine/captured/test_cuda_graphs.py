"""The calls that record a step, and their order, on a GPU that is not there. That graphs give the same numbers,
`loadtest.gpu_check` shows where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from headway.engine.captured import cuda_graphs
from headway.engine.captured.cuda_graphs import GraphRecorder

GPU = torch.device("cuda")


class Stream:
    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait_stream(self, other: Stream) -> None:
        assert other is not self


class Graph:
    def __init__(self) -> None:
        self.num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1


class Gpu:
    """As much of ``torch.cuda`` as recording takes. A capture takes ten bytes."""

    Stream, CUDAGraph = Stream, Graph

    def __init__(self) -> None:
        self.default = self.stream_now = Stream(GPU)
        self.free = 100
        self.captures: list[tuple[object, Stream]] = []
        self.is_capturing = False
        self.waiting: int | str = 0

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, 1)

    def current_stream(self, device: torch.device) -> Stream:
        return self.stream_now

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.stream_now = self.stream_now, stream
        try:
            yield
        finally:
            self.stream_now = before

    @contextmanager
    def graph(self, graph: Graph, pool: object, stream: Stream, capture_error_mode: str) -> Iterator[None]:
        """As torch's, it keeps its stream where the capture fails."""
        self.stream_now, self.is_capturing = stream, True
        yield
        self.is_capturing = False
        self.free -= 10
        self.captures.append((pool, stream))

    def get_sync_debug_mode(self) -> int | str:
        return self.waiting

    def set_sync_debug_mode(self, mode: int | str) -> None:
        self.waiting = mode

    def wait(self) -> None:
        """What ``item`` does."""
        if self.waiting == "error":
            raise RuntimeError("called a synchronizing CUDA operation")

    def synchronize(self, device: torch.device) -> None: ...

    def empty_cache(self) -> None: ...

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        return self.free, 100


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(cuda_graphs, "torch", SimpleNamespace(cuda=gpu))
    return gpu


def test_a_step_is_run_before_it_is_captured_and_not_by_its_replay(gpu: Gpu) -> None:
    calls: list[bool] = []
    replay = GraphRecorder(GPU).record(lambda: calls.append(gpu.is_capturing))
    assert calls == [False, False, True]
    replay()
    assert calls == [False, False, True]
    assert replay.__self__.num_replays == 1  # type: ignore[attr-defined]


def test_all_steps_share_a_pool_and_a_stream_of_their_own(gpu: Gpu) -> None:
    recorder = GraphRecorder(GPU)
    for _ in range(3):
        recorder.record(lambda: None)
    assert len(set(gpu.captures)) == 1
    assert gpu.captures[0][1] is not gpu.default
    assert recorder.num_bytes == 30


def test_what_waits_for_the_device_when_it_is_compiled_may_and_later_is_not_captured(gpu: Gpu) -> None:
    num_calls = 0

    def compiled_once() -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            gpu.wait()

    GraphRecorder(GPU).record(compiled_once)
    assert len(gpu.captures) == 1
    with pytest.raises(RuntimeError, match="synchronizing"):
        GraphRecorder(GPU).record(gpu.wait)
    assert len(gpu.captures) == 1
    assert (gpu.waiting, gpu.stream_now) == (0, gpu.default)


def test_a_capture_that_fails_leaves_the_stream_as_it_was(gpu: Gpu) -> None:
    def step() -> None:
        if gpu.is_capturing:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        GraphRecorder(GPU).record(step)
    assert gpu.stream_now is gpu.default
