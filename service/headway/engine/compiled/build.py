"""Compiles exported programs, in a process of its own: ``python -m headway.engine.compiled.build FOLDER...``.

Each folder holds a ``program.pt2``. The library is put beside the folder when it is complete, under the folder's name
with ``.pt2``. The engine starts this process and goes on serving: compiling takes some tens of seconds of Python and of
the C++ compiler, which in a thread of the engine would hold up every step. The process is of the lowest priority and
ends with the engine.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch._inductor
from torch.export import ExportedProgram

import headway.engine.load  # noqa: F401 - defines every operator that a loaded model may call
from headway.engine.child import die_with
from headway.engine.native.build import turn

PROGRAM = "program.pt2"
OPTIONS = {
    "cpp.dynamic_threads": True,
    "aot_inductor.precompile_headers": False,  # worth it from the second compilation on
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles a Headway engine's step; not started by hand.")
    parser.add_argument("--parent", type=int, required=True, help="the process id of the engine")
    parser.add_argument("--threads", type=int, required=True, help="threads that the code will run on")
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    die_with(arguments.parent)
    os.nice(19)
    torch.set_num_threads(arguments.threads)  # nothing is computed here, but the code is made for that many
    for folder in arguments.folders:
        try:
            compile_program(folder)
        except Exception as exc:
            sys.exit(_explain(exc))


def compile_program(folder: Path) -> Path:
    """The library of the program in ``folder``. Of several processes that want it one makes it, the others wait."""
    library = folder.with_suffix(".pt2")
    with turn(folder.with_suffix(".lock")):
        if not library.exists():
            _compile(folder).replace(library)
    return library


def _compile(folder: Path) -> Path:
    program = torch.export.load(folder / PROGRAM)
    _give_example(program)
    built = folder / "library.pt2"
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(program, package_path=str(built), inductor_configs=OPTIONS)
    return built


def _give_example(program: ExportedProgram) -> None:
    """Tensors without values, from the program's record of its arguments: the real ones would be a layer's weights."""
    inputs = tuple(node.meta["val"] for node in program.graph.nodes if node.op == "placeholder")
    program._example_inputs = (inputs, {})


def _explain(error: Exception) -> str:
    """In one line: the C++ compiler's own word, or the first of torch's many."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    compiler = next((line for line in lines if " error: " in line), None)
    return compiler or f"{type(error).__name__}: {lines[0] if lines else ''}"


if __name__ == "__main__":
    main()
