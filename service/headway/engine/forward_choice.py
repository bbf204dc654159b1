"""Which forward an engine runs: on a GPU compiled and captured, elsewhere op by op, with the CPU's kernels in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from headway.engine.attention import OP
from headway.engine.cache_folder import compiler_folder
from headway.engine.captured.cuda_graphs import GraphRecorder
from headway.engine.captured.forward import CapturedForward
from headway.engine.captured.ladder import Ladder
from headway.engine.captured.recording import Recorder
from headway.engine.config import AutoOrOff, EngineConfig
from headway.engine.forward import EagerForward, Forward
from headway.engine.kv_cache import KvCache
from headway.engine.load import LoadedModel, Progress
from headway.engine.page_memory import CAPTURED_SHARE

COMPILING, CAPTURING = "compiling the model", "capturing decodes"
"""What the start says when it begins to."""


@dataclass(frozen=True, slots=True)
class Ways:
    """That a device has of running steps, besides op by op."""

    compiler: str | None = None
    """A backend of torch.compile."""
    compiler_folder: Path = Path()
    """Where it keeps what it has compiled."""
    make_recorder: Callable[[], Recorder] | None = None
    """Of steps that only decode."""
    captured_bytes: int = 0
    """The most that recordings may take."""


def ways_for(device: torch.device, config: EngineConfig) -> Ways:
    """A CPU has none: its own kernels leave less to compile, and its launches cost nothing. Nor has a divided model:
    collectives between the layers were never compiled or captured anywhere yet."""
    if device.type != "cuda" or config.tensor_parallel_size > 1:
        return Ways()
    captures = config.captured_steps is AutoOrOff.AUTO and has_gpu_kernel()
    return Ways(
        compiler="inductor" if config.compiled_steps is AutoOrOff.AUTO else None,
        compiler_folder=compiler_folder(config),
        make_recorder=(lambda: GraphRecorder(device)) if captures else None,
        captured_bytes=int(torch.cuda.get_device_properties(device).total_memory * CAPTURED_SHARE),
    )


def has_gpu_kernel() -> bool:
    """Whether attention has one: in plain torch it waits for the device, which cannot be captured."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(OP, "CUDA")


def choose_forward(loaded: LoadedModel, cache: KvCache, ways: Ways, max_num_seqs: int, progress: Progress) -> Forward:
    """Ready to run; where it is compiled, that takes a minute or more the first time."""
    forward: Forward = EagerForward(loaded, cache)
    if ways.compiler is not None:
        from headway.engine.compiled import compile_forward  # takes seconds, and a CPU does without

        progress(COMPILING)
        forward = compile_forward(loaded, cache, ways.compiler_folder, ways.compiler)
    if ways.make_recorder is None:
        return forward
    progress(CAPTURING)
    ladder = Ladder(max_num_seqs, cache.max_model_len, cache.page_size)
    captured = CapturedForward(forward, ladder, cache.scratch_page, loaded.device)
    recorder = ways.make_recorder()
    captured.capture(recorder, ways.captured_bytes)
    progress(f"captured {len(captured.shapes)} of {len(ladder.shapes)} decodes in {recorder.num_bytes / 1e6:.0f} MB")
    return captured
