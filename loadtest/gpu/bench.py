"""What all parts share: the device and its rates, how much is measured, and one engine, built when it is first needed.

The engine is the one that users get (`headway.engine.build`), driven by its `step`; only its model is made here.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from functools import cached_property

import torch

from headway.core.scheduler_config import PrefixSharing, SchedulerConfig
from headway.engine.attention import ATTENTION_NAME
from headway.engine.build import assemble
from headway.engine.config import AutoOrOff, Device, EngineConfig
from headway.engine.engine import Engine
from headway.engine.load import Progress, prepare
from loadtest.floor import Floor
from loadtest.gpu.deadline import Deadline
from loadtest.gpu.model import ModelShape, build_model, build_tokenizer
from loadtest.gpu.timing import copy_rate, matmul_rate


def _ignore(_stage: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. The defaults are meant for one GPU with 100 GB or more."""

    model: ModelShape = field(default_factory=ModelShape)
    batch_sizes: tuple[int, ...] = (1, 16, 64, 256)
    """Of decode steps."""
    context_len: int = 1024
    """Prompt tokens of the sequences in them."""
    num_windows: int = 5
    steps_per_window: int = 20
    """A step's time is the median over the windows."""
    profiled_batch_sizes: tuple[int, ...] = (1, 64)
    num_profiled_steps: int = 30
    prompt_lengths: tuple[int, ...] = (2048, 8000)
    num_prompt_tokens: int = 32_000
    """Of all prompts that are prefilled at once."""
    num_requests: int = 128
    """That Headway and transformers answer in turns."""
    request_prompt_lens: tuple[int, int] = (128, 512)
    request_output_lens: tuple[int, int] = (64, 256)
    num_rounds: int = 2
    peer_cached_tokens: int | None = None
    """Room for keys and values that transformers gets; None: as much as it takes by itself."""
    rival_decodes: tuple[int, int] = (64, 4096)
    """Sequences, and keys of each."""
    rival_prompts: tuple[int, int] = (4, 4096)
    compiles_rivals: bool = True
    copy_bytes: int = 4 * 2**30
    """Of the tensor that is copied; many times what the caches hold."""
    matmul_size: int = 8192
    num_processes: int = 8
    """For correctness, which is mostly compiling; 0: in this process."""
    page_size: int = 16

    @property
    def max_num_seqs(self) -> int:
        return max(self.batch_sizes)

    @property
    def num_step_tokens(self) -> int:
        """The engine's own default, which it has on a GPU."""
        return SchedulerConfig(max_num_seqs=self.max_num_seqs).num_step_tokens

    def max_output_len(self, batch_size: int) -> int:
        """Tokens that the first sequence of a batch may get until the last one is measured: some while the others'
        prompts are computed, at least half a step of them at a time, and those of the measured steps."""
        num_prefill_steps = 2 * batch_size * self.context_len // self.num_step_tokens
        measured = max(self.num_windows * self.steps_per_window, self.num_profiled_steps)
        return num_prefill_steps + measured + 64

    @property
    def kv_bytes(self) -> int:
        """For the largest batch, and a fifth more, below which nobody is admitted."""
        tokens = max(size * (self.context_len + self.max_output_len(size)) for size in self.batch_sizes)
        tokens = max(tokens, 2 * self.num_prompt_tokens, self.model.max_model_len)
        return int(1.2 * tokens) * self.model.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class Rates:
    """The device at its best."""

    copy_bytes_per_s: float
    """Read and written, by a copy within its memory."""
    matmul_flops_per_s: float
    """Of a large matrix product in the model's type."""


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What a bench is made of."""

    device: torch.device
    sizes: Sizes
    num_repeats: int = 20
    """Of a kernel's time, whose median counts."""
    kernels: AutoOrOff = AutoOrOff.AUTO
    """The engine's setting."""
    max_steps_in_flight: int | None = None
    """Of the engine; None: what suits the device."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Of an engine's start."""

    name: str
    began_at: float
    """In seconds of CLOCK_MONOTONIC."""


class Bench:
    """See the module. ``say`` is told what the engine says of its start."""

    def __init__(self, settings: BenchSettings, deadline: Deadline, say: Progress = _ignore) -> None:
        self.settings = settings
        self.deadline = deadline
        self.device = settings.device
        self.sizes = settings.sizes
        self.num_repeats = settings.num_repeats
        self.stages: list[Stage] = []
        """Of the engines that were built."""
        self._tell = say

    @cached_property
    def rates(self) -> Rates:
        sizes = self.sizes
        return Rates(
            copy_rate(self.device, self.num_repeats, sizes.copy_bytes),
            matmul_rate(self.device, self.num_repeats, sizes.matmul_size, sizes.model.dtype),
        )

    @cached_property
    def floor(self) -> Floor:
        return self.sizes.model.floor(self.rates.copy_bytes_per_s, self.rates.matmul_flops_per_s)

    @cached_property
    def engine(self) -> Engine:
        """With a random model, ready to step."""
        return self.build_engine(self.sizes.model, self.sizes.max_num_seqs, self.sizes.kv_bytes)

    def build_engine(self, shape: ModelShape, max_num_seqs: int, kv_bytes: int) -> Engine:
        config = EngineConfig(
            model=shape.name,
            device=Device(self.device.type),
            kv_memory=str(kv_bytes),
            page_size=self.sizes.page_size,
            native_kernels=self.settings.kernels,
            pack_weights=self.settings.kernels,
        )
        model = build_model(shape, self.device, ATTENTION_NAME)
        loaded = prepare(model, build_tokenizer(shape.vocab_size), config, self._say)
        # Equal prompts would share pages, and less would be read than the floor counts.
        scheduling = SchedulerConfig(max_num_seqs=max_num_seqs, prefix_sharing=PrefixSharing.OFF)
        engine = assemble(loaded, config, scheduling, self._say, max_steps_in_flight=self.settings.max_steps_in_flight)
        engine.rehearse()
        return engine

    def _say(self, stage: str) -> None:
        self.stages.append(Stage(stage, time.monotonic()))
        self._tell(stage)

    def release(self) -> None:
        """What a part has left behind, on the device too."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
