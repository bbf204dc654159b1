"""How many bytes are left for pages: of a GPU, once it is known what the rest takes, and of a host.

    ├─────────────── memory_fraction × total ───────────────┤┄┄┄┄┄┄┄┄┄┄┄┄┤ total
    │ weights │ largest step │ outside │ margin │   pages   │    others    │

Nothing here looks at a device: `headway.engine.device_memory` measures, while the largest step that the settings allow
is run (`headway.engine.largest_step`), and what is measured comes in as plain numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.errors import SettingError
from headway.engine.config import EngineConfig
from headway.engine.memory import available_host_bytes

HOST_SHARE = 0.25
MAX_HOST_BYTES = 4 * 1024**3
CAPTURED_SHARE = 0.02
"""Of the device's memory: the most that captured steps may take, which are captured when the pages are there already.
They share one pool, as large as what the largest one computes with; a graph itself takes some megabytes."""
FRAGMENTED_SHARE = 0.1
"""Of what a step computes with: steps differ in size, so the allocator's blocks do not fit all of them exactly."""
MIN_MARGIN_BYTES = 256 * 1024**2
"""Kernels that are loaded, and buffers that libraries allocate, when they are first needed."""
_GB = 1e9


@dataclass(frozen=True, slots=True)
class PageMemory:
    """Bytes for pages, and the setting that says so, for whoever finds that they are too few."""

    num_bytes: int
    setting: str
    value: object


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What was measured of a GPU, in bytes."""

    total: int
    others: int
    """Taken before the model was loaded: by other processes, and by the CUDA context of this one."""
    weights: int
    """That torch held after loading."""
    step: int
    """That torch held beside the weights at the peak of the largest step."""
    outside: int
    """That was taken since loading began, but not by torch: what libraries allocate for themselves."""

    @property
    def margin(self) -> int:
        """Left free on purpose, for what was not measured."""
        return int(self.total * CAPTURED_SHARE + self.step * FRAGMENTED_SHARE) + MIN_MARGIN_BYTES

    @property
    def taken(self) -> int:
        """By this engine, without pages."""
        return self.weights + self.step + self.outside + self.margin

    @property
    def free(self) -> int:
        """That this engine could have at the most."""
        return self.total - self.others


def host_memory(config: EngineConfig) -> PageMemory:
    """For a model on a CPU, or one rank's part of it."""
    num_bytes = min(int(available_host_bytes() * HOST_SHARE), MAX_HOST_BYTES) // config.tensor_parallel_size
    return PageMemory(num_bytes, "kv_memory", config.kv_memory)


def device_memory(use: DeviceUse, fraction: float) -> PageMemory:
    """What remains of ``fraction`` of a GPU. Raises ``SettingError`` if nothing does."""
    allowed = int(use.total * fraction)
    num_bytes = min(allowed, use.free) - use.taken
    if num_bytes <= 0:
        raise SettingError("memory_fraction", fraction, _way_out(use, allowed))
    return PageMemory(num_bytes, "memory_fraction", fraction)


def _way_out(use: DeviceUse, allowed: int) -> str:
    parts = f"weights {_gb(use.weights)}, the largest step {_gb(use.step)}, other {_gb(use.outside + use.margin)}"
    found = f"nothing is left for keys and values: this engine needs {_gb(use.taken)} ({parts})"
    if use.taken < allowed:
        return f"{found} of {_gb(use.free)} that nobody else has taken; stop what else runs on this GPU"
    smaller = "lower max_num_batched_tokens or max_num_seqs, or take a smaller model or more GPUs"
    if use.taken < use.free:
        return f"{found} and may take {_gb(allowed)}; use more than {_rounded_up(use.taken / use.total)}, or {smaller}"
    return f"{found}, and the GPU has {_gb(use.total)}, {_gb(use.others)} of it taken by others; {smaller}"


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / _GB:.2f} GB"


def _rounded_up(share: float) -> str:
    return f"{min(1.0, -(-share * 100 // 1) / 100):.2f}"
