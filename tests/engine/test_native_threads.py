"""How the native ops share their work between threads (native/threads.h)."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from headway.engine.cache_folder import cache_folder
from headway.engine.config import EngineConfig
from headway.engine.native_linear import pack_weight

ROWS = torch.randn(16, 576).bfloat16()
WEIGHT = pack_weight(torch.randn(3072, 576).bfloat16())

IN_A_FORKED_CHILD = """
import os, sys
from pathlib import Path
import torch
from headway.engine.native.kernels import use_native_kernels
assert use_native_kernels(Path(sys.argv[1]), print)
from tests.engine.test_native_threads import multiply
torch.set_num_threads(3)
before = multiply()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(multiply(), before) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def multiply() -> Tensor:
    output: Tensor = torch.ops.headway.linear(ROWS, WEIGHT, 3072)
    return output


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.usefixtures("kernels")
def test_one_thread_gives_what_several_give() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = multiply()
        for count in (2, 3, 8):
            torch.set_num_threads(count)
            assert all(torch.equal(multiply(), alone) for _ in range(50))
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("kernels", "several_threads")
def test_helpers_are_started_once() -> None:
    multiply()
    before = num_threads()
    for _ in range(20):
        multiply()
    assert num_threads() == before


@pytest.mark.usefixtures("kernels")
def test_callers_in_several_threads_do_not_disturb_each_other() -> None:
    expected = multiply()

    def call_often(_: int) -> bool:
        torch.set_num_threads(3)
        return all(torch.equal(multiply(), expected) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call_often, range(4)))


@pytest.mark.usefixtures("kernels")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    """A child has none of its parent's threads; whoever waited for one of them would wait for ever."""
    command = [sys.executable, "-c", IN_A_FORKED_CHILD, str(cache_folder(EngineConfig()))]
    subprocess.run(command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
