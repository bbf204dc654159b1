"""What captures a step, as an interface: on a GPU a CUDA graph, elsewhere nothing but the call itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Replay = Callable[[], None]
"""Does again what was recorded: on what its inputs hold now, into the same outputs."""


class Recorder(Protocol):
    """Records steps of one engine."""

    def record(self, step: Callable[[], None]) -> Replay:
        """Runs ``step`` at least once. It must read and write tensors that stay where they are. Raises if it does
        something that cannot be repeated (waits for the device, say)."""

    @property
    def num_bytes(self) -> int:
        """Of the device's memory that the recordings take."""


class DirectRecorder:
    """Repeats a step by calling it: no faster, and the same in all else."""

    num_bytes = 0

    def record(self, step: Callable[[], None]) -> Replay:
        step()
        return step
