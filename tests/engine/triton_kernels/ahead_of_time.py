"""Compiles launches for GPUs that are not there and reads what became of them from the machine code."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from headway.engine.triton_kernels.launch import Launch

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float8_e4m3fn: "fp8e4nv",
}


@dataclass(frozen=True)
class Compiled:
    """One kernel for one kind of chip."""

    shared_bytes: int
    num_registers: int
    """Per thread."""
    stack_bytes: int
    ptx: str
    sass: str
    """Disassembly."""

    def count(self, instruction: str) -> int:
        return len(re.findall(rf"\b{instruction}\b", self.sass))

    @property
    def num_pending_products(self) -> int:
        """The most of a warpgroup's products that may still run when the program goes on."""
        return max(map(int, re.findall(r"wgmma\.wait_group\.sync\.aligned (\d+)", self.ptx)), default=0)

    @property
    def num_spills(self) -> int:
        """Instructions that store to or load from a thread's local memory."""
        return self.count("STL") + self.count("LDL")


def compile_launch(launch: Launch, capability: int) -> Compiled:
    """``capability`` × 10."""
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    kernel = triton.compile(_source(launch), target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "--dump-resource-usage", file.name)
        sass = _tool("nvdisasm", file.name)
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return Compiled(kernel.metadata.shared, registers, stack, kernel.asm["ptx"], sass)


def _source(launch: Launch) -> ASTSource:
    """Specialised as a launch specialises: pointers and numbers that 16 divides, ones, and what is not there."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = dict(launch.constants)
    attributes = {}
    for index, parameter in enumerate(launch.kernel.params):
        name = parameter.name
        value = constants[name] if name in constants else launch.arguments[name]
        is_one = isinstance(value, int) and value == 1 and not parameter.do_not_specialize
        if name in constants or value is None or is_one:
            constants[name] = value
            signature[name] = "constexpr"
            continue
        signature[name] = _type(value)
        if isinstance(value, Tensor) or (
            isinstance(value, int) and value % 16 == 0 and not parameter.do_not_specialize
        ):
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)


def _type(value: Tensor | int | float) -> str:
    if isinstance(value, Tensor):
        return "*" + TYPES[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / name, *arguments], check=True, capture_output=True, text=True).stdout
