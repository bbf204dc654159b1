"""Which model the engine serves, where, and how much memory its keys and values may take.

No torch here: the worker's I/O process reads these settings too. What is only known once the model is loaded (the
number of pages, the real length limit) is not a setting but an argument of the parts that need it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from headway.core.errors import SettingError
from headway.core.job import TOKEN

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)


class Device(StrEnum):
    """Where the model runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    """The type of weights, keys and values."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class AutoOrOff(StrEnum):
    """For a faster way that is taken wherever it can be, unless it is switched off."""

    AUTO = "auto"
    OFF = "off"


class Quantization(StrEnum):
    """How exactly the weights of linear layers are kept."""

    OFF = "off"
    INT8 = "int8"


class KvCacheDType(StrEnum):
    """How exactly keys and values are kept."""

    AUTO = "auto"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Raises ``SettingError`` for a value that can hold for no model."""

    model: str = "smollm2"
    """What to load: a built-in name (smollm2), a Hugging Face id, a folder, or a GGUF file."""
    served_model: str = "default"
    """The name under which jobs ask for it: the model token of their subject."""
    device: Device = Device.AUTO
    """auto takes the GPU if there is one, else the CPU."""
    dtype: DType = DType.AUTO
    """auto keeps the checkpoint's own type, except that a CPU without bfloat16 instructions uses float32."""
    kv_memory: str | None = None
    """Memory for keys and values, in bytes or like 2GiB. Default: a quarter of the free memory, 4 GiB at the most, on a
    CPU; on a GPU what memory_fraction leaves."""
    memory_fraction: float = 0.9
    """Share of the GPU's total memory that this engine may take, for weights, keys and values, and whatever a step
    needs. The largest step is measured at the start; what remains after it, less a margin of some per cent, holds keys
    and values. Two engines on one GPU take 0.45 each."""
    kv_cache_dtype: KvCacheDType = KvCacheDType.AUTO
    """auto keeps keys and values in the model's type. fp8 keeps them in one byte each (float8 e4m3, scaled by head to
    what is measured at the start): twice as many tokens in the same memory, for answers that differ from the model's
    own now and then. It needs a GPU of compute capability 8.9 or newer; a CPU computes it in plain torch, slowly."""
    page_size: int = 16
    """Tokens per page of keys and values. Smaller wastes less at the end of a sequence and shares more."""
    max_model_len: int | None = None
    """Most tokens of one sequence, prompt and output together; never more than the model's own limit, the default."""
    num_threads: int | None = None
    """CPU threads of the engine. Default: torch's own choice, one per core."""
    pack_weights: AutoOrOff = AutoOrOff.AUTO
    """auto merges linear layers that share their input and, for an x86 CPU (bfloat16, float32), rearranges the weights
    of all. A head that is tied to the embeddings then has a copy of its own there. off leaves the model as loaded."""
    quantization: Quantization = Quantization.OFF
    """int8 keeps the weights of linear layers in one byte each, on a CPU: half the memory of bfloat16 and shorter
    steps, for answers that differ from the model's own now and then. off keeps them as they are."""
    native_kernels: AutoOrOff = AutoOrOff.AUTO
    """auto compiles the CPU's kernels (attention, linear layers) on first use (half a minute, kept in the cache folder)
    and does without where there is no C++ compiler; on a GPU it takes Triton's for attention. off always does without,
    with attention several times slower."""
    overlap: AutoOrOff = AutoOrOff.AUTO
    """auto plans and launches a GPU's next step while it runs the current one; on a CPU, which both would need, it has
    no effect. off waits for every step before it plans the next. The answers are the same."""
    compiled_steps: AutoOrOff = AutoOrOff.AUTO
    """auto compiles the model for a GPU when it starts (torch.compile; about a minute, less at later starts, since the
    cache folder keeps what it can) and does without where that fails. off runs it op by op."""
    captured_steps: AutoOrOff = AutoOrOff.AUTO
    """auto captures steps that only decode as CUDA graphs when it starts, one for each of some batch sizes, in at most
    2 % of the GPU's memory, and does without where that fails. off launches every step op by op."""
    tensor_parallel_size: int = 1
    """GPUs of this machine to divide the model over, with a process for each; for models that do not fit one. It must
    divide the model's heads. kv_memory is then that of each GPU."""
    cache_folder: str | None = None
    """Where converted and downloaded models are kept, and what was compiled. Default: headway in the user's cache
    folder, and the Hugging Face cache for downloads."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. It can do whatever this process can."""

    def __post_init__(self) -> None:
        _require(
            TOKEN.fullmatch(self.served_model) is not None, "served_model", self.served_model, "use [a-z0-9-]{1,63}"
        )
        _require(self.device in set(Device), "device", self.device, f"use one of {', '.join(Device)}")
        _require(self.dtype in set(DType), "dtype", self.dtype, f"use one of {', '.join(DType)}")
        _require(
            0 < self.memory_fraction <= 1, "memory_fraction", self.memory_fraction, "use more than 0 and at most 1"
        )
        _require(
            self.kv_cache_dtype in set(KvCacheDType),
            "kv_cache_dtype",
            self.kv_cache_dtype,
            f"use {' or '.join(KvCacheDType)}",
        )
        _require(
            self.kv_cache_dtype != KvCacheDType.FP8 or self.dtype != DType.FLOAT64,
            "kv_cache_dtype",
            self.kv_cache_dtype,
            "keys and values in float64 are there to be exact; set it to auto, or dtype to another",
        )
        _require(self.page_size >= 1, "page_size", self.page_size, "use 1 or more")
        _require(self.max_model_len is None or self.max_model_len >= 2, "max_model_len", self.max_model_len, "use ≥ 2")
        _require(self.num_threads is None or self.num_threads >= 1, "num_threads", self.num_threads, "use 1 or more")
        _require(self.tensor_parallel_size >= 1, "tensor_parallel_size", self.tensor_parallel_size, "use 1 or more")
        for setting in ("pack_weights", "native_kernels", "overlap", "compiled_steps", "captured_steps"):
            value = getattr(self, setting)
            _require(value in set(AutoOrOff), setting, value, f"use {' or '.join(AutoOrOff)}")
        _require(
            self.quantization in set(Quantization),
            "quantization",
            self.quantization,
            f"use {' or '.join(Quantization)}",
        )
        if self.quantization is Quantization.INT8:
            for setting in ("pack_weights", "native_kernels"):
                value = getattr(self, setting)
                _require(value != AutoOrOff.OFF, setting, value, "int8 weights need it; use auto, or quantization off")
            size = self.tensor_parallel_size
            _require(
                size == 1, "tensor_parallel_size", size, "int8 weights are not divided; use 1, or quantization off"
            )
        if self.kv_memory is not None:
            parse_memory("kv_memory", self.kv_memory)

    @property
    def kv_memory_bytes(self) -> int | None:
        return None if self.kv_memory is None else parse_memory("kv_memory", self.kv_memory)


def parse_memory(setting: str, text: str) -> int:
    """Bytes of ``"1500000"``, ``"512MiB"`` or ``"2G"``: K, M, G, T count in 1000, Ki, Mi, Gi, Ti in 1024."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise SettingError(setting, text, "write bytes, or a number with a unit, like 512MiB or 2GiB")
    unit = (match[2] or "").upper()
    power = " KMGT".index(unit[0]) if unit else 0
    return int(float(match[1]) * (1024 if unit.endswith("I") else 1000) ** power)


def _require(holds: bool, setting: str, value: object, fix: str) -> None:
    if not holds:
        raise SettingError(setting, value, fix)
