"""The parts in the order in which they are run: first whether it is right, then how fast it is."""

from __future__ import annotations

from loadtest.gpu import bandwidth, correctness, idle, peer, prefill, rivals, start, steps, waits
from loadtest.gpu.checks import Part

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        correctness.PART,
        bandwidth.PART,
        start.PART,
        steps.PART,
        prefill.PART,
        peer.PART,
        idle.PART,
        waits.PART,
        rivals.PART,
    )
}
