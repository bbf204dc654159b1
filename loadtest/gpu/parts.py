"""The parts in the order in which they are run: first whether it is right, then how fast it is."""

from __future__ import annotations

from loadtest.gpu import bandwidth, correctness, idle, pages, peer, prefill, rivals, steps, tokens
from loadtest.gpu.checks import Part

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        correctness.PART,
        pages.PAGES_PART,
        pages.CAPTURE_PART,
        bandwidth.PART,
        tokens.PART,
        steps.PART,
        idle.PART,
        prefill.PART,
        peer.PART,
        rivals.PART,
    )
}
