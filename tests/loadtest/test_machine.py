import os
import sys

import pytest

from loadtest.machine import CpuClock, describe_machine, num_cores


def test_the_machine_is_described_by_what_decides_its_speed():
    facts = describe_machine()
    assert facts["cpu"]
    assert facts["num_cores"] == num_cores() >= 1
    assert facts["memory_bytes"] > 0
    assert facts["torch"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_cpu_clock_counts_what_a_process_has_spent_since_it_was_made():
    clock = CpuClock({"self": os.getpid(), "none": None})
    before = sum(os.times()[:2])
    while sum(os.times()[:2]) - before < 0.1:
        pass
    elapsed = clock.elapsed()
    assert list(elapsed) == ["self"]
    assert elapsed["self"] == pytest.approx(sum(os.times()[:2]) - before, abs=0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_is_gone_has_no_figure():
    assert CpuClock({"gone": 2**22 + 1}).elapsed() == {}
